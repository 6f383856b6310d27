"""The answers of a fit about pairs that it did not see: what a raw confidence is worth."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from backend.domain.answers.json_values import field_scores, is_exact, leaf_at, leaves
from backend.domain.extraction.alignment import values_at
from backend.domain.extraction.assembling import Assembler
from backend.domain.extraction.confidences import fit_line
from backend.domain.extraction.occurrences import is_same
from backend.domain.extraction.plan import PPM, Way
from backend.domain.extraction.reads import FieldRead
from gpu_runners.distill.spans.dataset import Example, Pair
from gpu_runners.distill.spans.net import SpanNet
from gpu_runners.models.spans.adapter import CLASSES
from gpu_runners.models.spans.decoding import ANSWER, SETS, SPANS, Calibration, Reading, read_logits

MOST_HELD = 300  # pairs that a fit is asked about
FEWEST_PAIRS = 20  # with fewer, none is held


@dataclass(slots=True)
class Judged:
    """The raw confidences of what was read, and whether it was right, by kind; `f1_ppm` sums the answers' field F1."""

    raw: dict[str, list[float]] = field(default_factory=lambda: {SPANS: [], SETS: [], ANSWER: []})
    right: dict[str, list[bool]] = field(default_factory=lambda: {SPANS: [], SETS: [], ANSWER: []})
    f1_ppm: int = 0

    def add(self, kind: str, raw: float, *, is_right: bool) -> None:
        self.raw[kind].append(raw)
        self.right[kind].append(is_right)

    @property
    def n(self) -> int:
        return len(self.right[ANSWER])

    @property
    def mean_f1_ppm(self) -> int:
        return self.f1_ppm // self.n if self.n else PPM

    def calibration(self) -> Calibration:
        lines = {kind: fit_line(self.raw[kind], self.right[kind]) for kind in self.raw}
        return Calibration.from_json(Calibration(lines=lines).to_json())  # as it will be read


def split_held(pairs: Sequence[Pair], *, share: float, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The numbers of the pairs that train and of those that are held, both ascending: a share of the texts by their
    hashes, at most MOST_HELD, equal texts on one side."""
    if not share or len(pairs) < FEWEST_PAIRS:
        return np.arange(len(pairs)), np.zeros(0, dtype=np.int64)
    ranks = [hashlib.sha256(f"{seed}/".encode() + pair.text.encode("utf-8", "replace")).digest() for pair in pairs]
    n_held = min(MOST_HELD, round(share * len(pairs)))
    edge = sorted(ranks)[n_held]
    is_held = np.array([rank < edge for rank in ranks])
    return np.flatnonzero(~is_held), np.flatnonzero(is_held)


def judge(net: SpanNet, assembler: Assembler, pairs: Sequence[Pair], examples: Sequence[Example]) -> Judged:
    """Ask a fit about pairs."""
    judged = Judged()
    with torch.inference_mode():
        for pair, example in zip(pairs, examples, strict=True):
            scores = net.heads.logits(net.gather([example], dropout=0.0))
            arrays = {name: one.float().cpu().numpy() for name, one in scores.items()}
            arrays = {name: one[0] if name.startswith(CLASSES) else one for name, one in arrays.items()}
            note(judged, assembler, pair, read_logits(assembler.plan, arrays, example.offsets, example.glued))
    return judged


def note(judged: Judged, assembler: Assembler, pair: Pair, reading: Reading) -> None:
    """Judge what was read of a pair."""
    answer, fields = assembler.answer(pair.text, reading.spans, reading.classes)
    wanted = leaves(pair.answer)
    for one in fields:
        rule = assembler.plan.rules[one.rule]
        kind = SPANS if one.start is not None else SETS
        if rule.way is Way.EACH:
            judged.add(kind, one.confidence, is_right=_is_right_in_element(assembler, fields, one, pair.answer))
        elif kind is SPANS or rule.way in (Way.CLOSED, Way.MANY):
            judged.add(kind, one.confidence, is_right=wanted[leaf_at(rule.path, one.value)] > 0)
    judged.add(ANSWER, reading.confidence, is_right=is_exact(answer, pair.answer))
    judged.f1_ppm += field_scores(answer, pair.answer).f1_ppm


def _is_right_in_element(assembler: Assembler, fields: Sequence[FieldRead], one: FieldRead, gold: Any) -> bool:
    """Say whether an element of gold with the values that this one copied has this class too. Of a yes and a no in one
    list, either would be right by chance."""
    depth = assembler.plan.rules[one.rule].list_path.count("/") + 1
    where = one.path.split("/")[:depth]
    own = [one, *(other for other in fields if other.start is not None and other.path.split("/")[:depth] == where)]
    columns = [values_at(gold, assembler.leaves[field.rule].steps) for field in own]
    return any(all(map(is_same, element, (field.value for field in own))) for element in zip(*columns, strict=True))
