"""The prefixes that encoders were trained with and that only their model cards name.

A file of the encoder that names a prompt goes before this table (`sentence_settings`). Who is not here gets none: for
labels and groups that is what the cards of bge, gte, mxbai and arctic-embed say, whose instructions are for the queries
of a search alone. Instruction-tuned encoders (e5-instruct) want a sentence about the task, which no table has.
"""

import re
from dataclasses import dataclass
from enum import StrEnum


class Use(StrEnum):
    """The purpose of the vectors: features of a classifier, or distances between texts."""

    CLASSIFICATION = "classification"
    CLUSTERING = "clustering"


@dataclass(frozen=True, slots=True, kw_only=True)
class CardPrefix:
    """`name` is matched against a base's whole name without its pin; the owner may be left out, as folders do."""

    name: re.Pattern[str]
    prefixes: dict[Use, str]
    source: str
    read_on: str


CARD_PREFIXES = (
    CardPrefix(
        name=re.compile(r"(?:intfloat/)?(?:multilingual-)?e5-(?:small|base|large)(?:-v2|-unsupervised)?"),
        prefixes={Use.CLASSIFICATION: "query: ", Use.CLUSTERING: "query: "},
        source="huggingface.co/intfloat/multilingual-e5-large, FAQ 1: 'query: ' for features and clustering",
        read_on="2026-11-26",
    ),
    CardPrefix(
        name=re.compile(r"(?:nomic-ai/)?nomic-embed-text-v1(?:\.5)?(?:-ablated|-unsupervised)?"),
        prefixes={Use.CLASSIFICATION: "classification: ", Use.CLUSTERING: "clustering: "},
        source="huggingface.co/nomic-ai/nomic-embed-text-v1.5, 'Task instruction prefixes'",
        read_on="2026-11-26",
    ),
)


def card_prefix(name: str, use: Use) -> str:
    """The prefix of this encoder's card, "" where no card of the table is its own."""
    bare = name.partition("@")[0]
    rows = (row.prefixes[use] for row in CARD_PREFIXES if row.name.fullmatch(bare))
    return next(rows, "")
