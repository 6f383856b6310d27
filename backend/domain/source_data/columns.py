"""The choice of the columns that are the input, the answer, the group and the side: by their names, then by what
stands in them."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backend.domain.errors import InvalidInput
from backend.domain.source_data.records import Record
from backend.domain.spec.fields import MAX_LABELS
from backend.domain.spec.gold import HELDOUT, TRAIN

# The better name first. A name of several words counts by its words: "ticket_category" is a category.
INPUT_NAMES = (
    *("input", "inputs", "text", "message", "utterance", "question", "query", "prompt", "sentence", "body", "content"),
    *("email", "mail", "ticket", "review", "comment", "description", "document", "request", "post", "tweet", "title"),
    *("subject", "instruction", "transcript", "note"),
)
OUTPUT_NAMES = (
    *("output", "outputs", "label", "intent", "category", "class", "target", "answer", "completion", "response"),
    *("sentiment", "topic", "tag", "expected", "gold", "department", "queue", "priority", "route", "result", "summary"),
    *("labels", "type", "y", "emotion", "language", "rating", "stars", "reply"),
)
GROUP_NAMES = (
    *("group", "conversation_id", "thread_id", "ticket_id", "session_id", "sessionid", "customer_id", "user_id"),
    *("userid", "author", "document_id"),
)
SPLIT_NAMES = ("split", "set", "subset", "partition", "fold")
SIDE_OF = {
    **dict.fromkeys(("train", "training"), TRAIN),
    **dict.fromkeys(("test", "testing", "heldout", "held-out", "holdout"), HELDOUT),
}
VALIDATION = frozenset({"validation", "valid", "val", "dev", "eval", "evaluation"})
_LOOKED_AT = 5_000
MOST_LABEL_CHARS = 80
_WORD = re.compile(r"[a-z]+|[A-Z][a-z]*|[A-Z]+(?![a-z])|[0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnMapping:
    """Columns by what they are; texts of several input columns are joined, a line each. `output` is None where the file
    has inputs alone."""

    inputs: tuple[str, ...]
    output: str | None = None
    group: str | None = None
    split: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.inputs, *(name for name in (self.output, self.group, self.split) if name is not None))


def cell_text(value: Any) -> str:
    """A cell as the text it is kept as: a missing value is empty, a list or object its JSON, 3.0 is 3."""
    if value is None or (isinstance(value, float) and value != value):
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def check_mapping(mapping: ColumnMapping, columns: Sequence[str]) -> ColumnMapping:
    """Raises InvalidInput where a column does not exist or is asked for twice."""
    for name in mapping.columns:
        if name not in columns:
            message = f"There is no column “{name}”. The file has: {', '.join(columns[:20])}."
            raise InvalidInput(message, code="unknown_column")
    twice = [name for name, n in Counter(mapping.columns).items() if n > 1]
    if twice:
        raise InvalidInput(f"The column “{twice[0]}” is named for two things.", code="unknown_column")
    return mapping


def infer_mapping(columns: Sequence[str], records: Sequence[Record]) -> ColumnMapping:
    """A mapping to show and to correct. Raises InvalidInput where no column holds a text.

    The answer is looked for first: it has a name of its own more often than the input has."""
    seen = {name: _Column.of(name, records[:_LOOKED_AT]) for name in columns}
    usable = {name: column for name, column in seen.items() if column.n_filled}
    if not usable:
        raise InvalidInput("No column of the file has a value.", code="no_input_column")
    split = next((name for name in usable if _rank(name, SPLIT_NAMES) is not None and usable[name].is_split), None)
    group = next((name for name in usable if _is_named(name, GROUP_NAMES) and usable[name].repeats), None)
    others = [name for name in usable if name not in (split, group)]
    output = _output_among(others, usable)
    inputs = _inputs_among([name for name in others if name != output], usable)
    if not inputs:
        inputs, output = ([output] if output is not None else (others or list(usable))[:1]), None
    return ColumnMapping(inputs=tuple(inputs), output=output, group=group, split=split)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """A column as its first rows show it."""

    name: str
    n_filled: int
    n_distinct: int
    mean_chars: float
    n_words: float
    has_numbers_alone: bool
    is_split: bool

    @classmethod
    def of(cls, name: str, records: Sequence[Record]) -> "_Column":
        texts = [text for record in records if (text := cell_text(record.values.get(name)).strip())]
        values = {text.casefold() for text in texts}
        n = len(texts)
        return cls(
            name=name,
            n_filled=n,
            n_distinct=len(set(texts)),
            mean_chars=sum(map(len, texts)) / n if n else 0.0,
            n_words=sum(len(text.split()) for text in texts) / n if n else 0.0,
            has_numbers_alone=n > 0 and all(_is_number(text) for text in texts[:200]),
            is_split=bool(values) and values <= (SIDE_OF.keys() | VALIDATION),
        )

    @property
    def repeats(self) -> bool:
        return 1 < self.n_distinct < self.n_filled

    @property
    def may_be_labels(self) -> bool:
        most = min(MAX_LABELS, max(2, self.n_filled // 2))
        return 2 <= self.n_distinct <= most and self.mean_chars <= MOST_LABEL_CHARS


def _output_among(names: Sequence[str], seen: Mapping[str, _Column]) -> str | None:
    """Choose it by its name; else the one column of few short values that repeat."""
    if len(names) < 2:
        return None
    named = [(rank, name) for name in names if (rank := _rank(name, OUTPUT_NAMES)) is not None]
    exact = [pair for pair in named if _rank(pair[1], INPUT_NAMES) is None]
    if exact or named:
        return min(exact or named)[1]
    short = [name for name in names if seen[name].may_be_labels and not seen[name].has_numbers_alone]
    return min(short, key=lambda name: (seen[name].n_distinct, name)) if short else None


def _inputs_among(names: Sequence[str], seen: Mapping[str, _Column]) -> list[str]:
    """Choose it by its name, with a subject or title before it; else the column of the longest texts."""
    texts = [name for name in names if not seen[name].has_numbers_alone]
    named = sorted((rank, name) for name in texts if (rank := _rank(name, INPUT_NAMES)) is not None)
    if not named:
        return [max(texts, key=lambda name: seen[name].mean_chars)] if texts else []
    best = named[0][1]
    if _is_named(best, ("input", "inputs")) and (instruction := _instruction(texts, seen)) is not None:
        return [instruction, best]
    heads = [name for name in texts if name != best and _is_named(name, ("subject", "title", "headline"))]
    return [*heads[:1], best]


def _instruction(names: Sequence[str], seen: Mapping[str, _Column]) -> str | None:
    """Alpaca's column, where it differs from row to row; one instruction for all is the task."""
    named = [name for name in names if _is_named(name, ("instruction",)) and seen[name].n_distinct > 1]
    return named[0] if named else None


def _is_named(name: str, names: Sequence[str]) -> bool:
    return _plain(name) in names


def _plain(name: str) -> str:
    return "_".join(word.lower() for word in _WORD.findall(name))


def _rank(name: str, names: Sequence[str]) -> tuple[int, int] | None:
    """(0, place) of a name that is one of `names`, (1, place) of one with such a word in it; less is better."""
    plain = _plain(name)
    if plain in names:
        return (0, names.index(plain))
    places = [names.index(word) for word in plain.split("_") if word in names]
    # a number or an id of the thing is not the thing
    return (1, min(places)) if places and not plain.endswith(("_id", "_count", "_at", "_date", "_url")) else None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
