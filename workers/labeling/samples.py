"""The pairs of a causal base where they are others than those of the data set: a label as a text to write, every
different valid answer of the teacher to an input, or answers with the teacher's distributions of their tokens.

To train on all answers is sequence-level knowledge distillation (Kim and Rush 2016) by samples of the teacher's
distribution instead of its mode: each counts by its share of the input's valid ones, so that an input counts once. The
distributions of tokens are for token-level distillation; a runner decides whether the tokens are its base's.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from backend.compiles.models import Candidate
from backend.domain.planning.trials import TrialKind
from backend.domain.spec.defaults import train_kind
from backend.domain.spec.parsing import LabelOutput, Spec
from workers.labeling.asking import answers_so_far
from workers.labeling.voting import Answers, reply_of
from workers.step.durable import CompileRun
from workers.training.sample_pairs import Pair, split_by_samples, with_soft_targets
from workers.training.training_set import completions
from workers.training.votes import MAX_VOTE_CHARS, valid_samples


def causal_pairs(run: CompileRun, rows: Sequence[Candidate], pairs: Sequence[Pair]) -> list[Pair] | None:
    """The pairs that a causal base trains on; None where none is trained or they are `pairs`. `rows` are the candidates
    among these, the others are gold, which has one answer."""
    if isinstance(run.spec.output, LabelOutput):
        return None if train_kind(run.spec) == TrialKind.ENCODER else completions(pairs)
    causal = run.spec.train.causal
    if causal.samples != "all" and not causal.n_soft_targets:
        return None
    answers = answers_so_far(run, rows)
    trained = list(pairs)
    if causal.samples == "all":
        samples = _samples(run.spec, rows, answers)
        trained = [one for pair in pairs for one in split_by_samples(pair, samples.get(pair["input"]))]
    if causal.n_soft_targets:
        choices = {row.text: [one for call in answers[row.text_key] for one in call] for row in rows}
        trained = [with_soft_targets(pair, choices.get(pair["input"], ())) for pair in trained]
    return trained


def sample_facts(spec: Spec, trained: Sequence[Pair]) -> dict[str, int | None]:
    """Count the pairs where all samples train, and those with soft targets where some are wanted."""
    causal = spec.train.causal
    n_soft = sum("soft_targets" in pair for pair in trained)
    return {
        "n_samples": len(trained) if causal.samples == "all" else None,
        "n_soft_targets": n_soft if causal.n_soft_targets else None,
    }


def _samples(spec: Spec, rows: Sequence[Candidate], answers: Mapping[str, Answers]) -> dict[str, Counter[str]]:
    """The valid answers to each text. Those that an arm of an ablation took over were made in another compile: there
    the votes speak, where they hold whole answers."""
    asked = [(row.text, [reply_of(spec, choice) for call in answers[row.text_key] for choice in call]) for row in rows]
    counted = valid_samples(spec, asked)
    return {row.text: samples or _whole_votes(row) for row, samples in zip(rows, counted, strict=True)}


def _whole_votes(row: Candidate) -> Counter[str]:
    return Counter({text: n for text, n in row.votes.items() if len(text) < MAX_VOTE_CHARS})
