"""The three sets of `draft_pool`: HWU64 in parts of related intents, and the families of CLINC150 and BANKING77 that
nothing was chosen on."""

import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.bench.draft_policy import SETS
from tests.bench.draft_policy_texts import Family, Texts, embedded, parts_of, read_texts
from tests.bench.label.sets import read_rows

N_PARTS, LEAST_INTENTS = 5, 5  # of HWU64


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSet:
    """Families that were measured together, and the seed of their streams."""

    name: str
    families: tuple[Family, ...]
    seed: int


def chosen_families(texts: Texts) -> list[Family]:
    """The families that the priors are fitted to, and all else was chosen on."""
    return [texts.families[i] for i in SETS["chosen"][0]]


def read_held_out(texts: Texts) -> list[TextSet]:
    """HWU64 is left out with a word where $KOLM_LABEL_DATA has no hwu64.jsonl."""
    fresh = [texts.families[i] for i in SETS["fresh"][0]]
    banking = tuple(family for family in fresh if family.name.startswith("banking77"))
    sets = [
        TextSet(name="CLINC150", families=tuple(family for family in fresh if family not in banking), seed=12),
        TextSet(name="BANKING77", families=banking, seed=13),
    ]
    try:
        return [TextSet(name="HWU64", families=tuple(_hwu64()), seed=11), *sets]
    except FileNotFoundError as missing:
        print(f"HWU64 is left out: {missing.filename} is not there", file=sys.stderr)
        return sets


def read_all(folder: Path) -> tuple[Texts, list[TextSet]]:
    texts = read_texts(folder)
    return texts, read_held_out(texts)


def _hwu64() -> Sequence[Family]:
    by_label: dict[str, list[str]] = defaultdict(list)
    for text, label, _ in read_rows("hwu64"):
        by_label[label].append(text)
    sentences = [text for label in sorted(by_label) for text in by_label[label]]
    rows = dict(zip(sentences, embedded(sentences), strict=True))
    intents = [np.stack([rows[text] for text in by_label[label]]) for label in sorted(by_label)]
    return [family for family in parts_of("hwu64", intents, N_PARTS) if len(family.intents) >= LEAST_INTENTS]
