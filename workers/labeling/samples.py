"""The pairs of a causal base where they are others than those of the data set: a label as a text to write, or every
different valid answer of the teacher to an input.

The latter is sequence-level knowledge distillation (Kim and Rush 2016) by samples of the teacher's distribution instead
of its mode: each answer counts by its share of the input's valid ones, so that an input counts once.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from backend.compiles.models import Candidate
from backend.domain.planning.trials import TrialKind
from backend.domain.spec.defaults import train_kind
from backend.domain.spec.parsing import LabelOutput
from workers.labeling.asking import answers_so_far
from workers.labeling.voting import reply_of
from workers.step.durable import CompileRun
from workers.training.training_set import completions
from workers.training.votes import MAX_VOTE_CHARS, valid_samples

Pair = dict[str, Any]


def causal_pairs(run: CompileRun, rows: Sequence[Candidate], pairs: Sequence[Pair]) -> list[Pair] | None:
    """The pairs that a causal base trains on; None where none is trained or they are `pairs`. `rows` are the candidates
    among these, the others are gold, which has one answer."""
    if isinstance(run.spec.output, LabelOutput):
        return None if train_kind(run.spec) == TrialKind.ENCODER else completions(pairs)
    if run.spec.train.causal.samples != "all":
        return None
    samples = _samples(run, rows)
    return [one for pair in pairs for one in _split(pair, samples.get(pair["input"]))]


def _split(pair: Pair, samples: Counter[str] | None) -> list[Pair]:
    if not samples:
        return [pair]
    n = samples.total()
    return [pair | {"output": answer, "weight": pair["weight"] * count / n} for answer, count in samples.items()]


def _samples(run: CompileRun, rows: Sequence[Candidate]) -> dict[str, Counter[str]]:
    """The valid answers to each text. Those that an arm of an ablation took over were made in another compile: there
    the votes speak, where they hold whole answers."""
    replies = answers_so_far(run, rows)
    asked = [
        (row.text, [reply_of(run.spec, choice) for call in replies[row.text_key] for choice in call]) for row in rows
    ]
    counted = valid_samples(run.spec, asked)
    return {row.text: samples or _whole_votes(row) for row, samples in zip(rows, counted, strict=True)}


def _whole_votes(row: Candidate) -> Counter[str]:
    return Counter({text: n for text, n in row.votes.items() if len(text) < MAX_VOTE_CHARS})
