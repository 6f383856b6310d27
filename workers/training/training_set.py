"""The way from labelled inputs to the pairs that train: every pair whose label is trusted, or as many as `k_distill`
says by a second selection; leaks left out; for labels the declared shares.

The shares divide the K of that selection: a label task's among the labels, counting gold, a json or text task's among
the slices. Where the labels of the training set are off the declared shares by more than 5 points, `sampling.balance`
decides: that is reported; or pairs are weighed until labels count as declared; or classes are thinned out
(`domain.answers.labels.balance`), the third tell of the seeds' pages.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from backend.compiles.models import Candidate, Slice
from backend.domain.answers.candidates import text_key
from backend.domain.answers.json_values import answer_text, parse_answer
from backend.domain.answers.labels import Balance, LabeledPair, balance, share_weights
from backend.domain.errors import CustomerError
from backend.domain.selection.allocation import allocate_by_shares
from backend.domain.selection.options import Method
from backend.domain.selection.select import SelectionReport, select
from backend.domain.spec.gold import drop_leaks
from backend.domain.spec.parsing import JsonOutput, LabelOutput, Spec, label_names, n_distilled, target_shares
from workers.candidates.ranking import stack

Gold = list[dict[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSet:
    """`rows` as a runner reads them, with `targets` in millionths where the votes leave more than one label possible;
    `balanced` is None where no shares are declared, `cuts` (`pair_cuts`) where none were compared."""

    rows: list[dict[str, Any]]
    balanced: Balance | None
    selection: SelectionReport
    cuts: list[dict[str, Any]] | None = None

    @property
    def texts(self) -> set[str]:
        return {row["input"] for row in self.rows}


def training_set(
    spec: Spec, slices: Sequence[Slice], labeled: Sequence[Candidate], gold: Gold, heldout: Sequence[str]
) -> TrainingSet:
    """Make the set; `slices` are those of the candidates. Where the teacher and gold disagree, gold is right. Raises
    CustomerError for a label that nothing trains."""
    known = {text_key(row["input"]) for row in gold}
    chosen, report = _select_pairs(spec, slices, [row for row in labeled if row.text_key not in known], gold)
    pairs = [_pair(spec, row) for row in chosen] + [_gold_pair(spec, row) for row in gold]
    pairs = [pairs[i] for i in drop_leaks([pair.key for pair in pairs], heldout)]
    shares = _shares(spec)
    balanced = None if shares is None else _balance(spec, pairs, shares)
    kept = pairs if balanced is None else [pairs[i] for i in balanced.kept]
    _check(spec, kept)
    weight = share_weights(kept, shares) if shares is not None and spec.sampling.balance == "weight" else {}
    column = "label" if isinstance(spec.output, LabelOutput) else "output"
    targets = {row.text: row.posterior for row in chosen if row.posterior and len(row.posterior) > 1}
    rows = [
        {"input": pair.key, column: pair.label, "weight": weight.get(pair.label, 1.0)}
        | ({"targets": targets[pair.key]} if pair.key in targets else {})
        for pair in kept
    ]
    return TrainingSet(rows=rows, balanced=balanced, selection=report)


def completions(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The pairs of a label task as a causal base trains on them: it writes the label."""
    return [{"input": row["input"], "output": row["label"], "weight": row["weight"]} for row in rows]


def _balance(spec: Spec, pairs: Sequence[LabeledPair], shares: dict[str, float]) -> Balance:
    """Thin out where the spec says drop; else every pair is kept, and the report says how far off they are."""
    if spec.sampling.balance == "drop":
        return balance(pairs, shares)
    return balance(pairs, shares, max_drop_share=0.0)


def _select_pairs(
    spec: Spec, slices: Sequence[Slice], rows: Sequence[Candidate], gold: Gold
) -> tuple[list[Candidate], SelectionReport]:
    """The second selection over the labelled pairs; score = agreement. Per label, so that no class is selected away, or
    of a json or text task per slice."""
    n = len(rows)
    is_label = isinstance(spec.output, LabelOutput)
    labels = [row.label for row in rows] if is_label else _slice_names(slices, rows)
    k_wanted = n_distilled(spec.sampling.k_distill, n)
    k = max(k_wanted, len(set(labels or ()))) if is_label else k_wanted
    is_all = spec.sampling.k_distill is None
    selection = select(
        stack([row.embedding for row in rows]),
        [(row.agreement_ppm or 0) / 1_000_000 for row in rows],
        [row.text_key for row in rows],
        k=k,
        labels=labels,
        k_by_label=None if is_all else _k_by_label(spec, slices, labels, gold, k),
        method=Method.ALL if is_all else Method.TWO_STEP,
        score_floor=0.0,  # what the teacher does not agree on is not here
    )
    return [rows[i] for i in selection.picks], selection.report


def _slice_names(slices: Sequence[Slice], rows: Sequence[Candidate]) -> list[str] | None:
    """The slice of each row; None where there is one slice alone."""
    if len(slices) < 2:
        return None
    names = {part.id: part.name for part in slices}
    return [names[row.slice_id] for row in rows]  # type: ignore[attr-defined]  # Django's, of the foreign key


def _k_by_label(
    spec: Spec, slices: Sequence[Slice], labels: Sequence[str] | None, gold: Gold, k: int
) -> dict[str, int] | None:
    """K of each label, or of each slice of a json or text task, by the declared shares; None where none are declared.
    Gold trains too, so that a label of which gold has many gets fewer."""
    if labels is None:
        return None
    there = Counter(labels)
    names = sorted(there)
    if not isinstance(spec.output, LabelOutput):
        weights = _weights(slices)
        wanted = [weights[name] for name in names]
        return dict(zip(names, allocate_by_shares(k, wanted, most=[there[name] for name in names]), strict=True))
    shares = _shares(spec)
    if shares is None:
        return None
    trained = Counter(row["output"] for row in gold if row["output"] in there)
    totals = allocate_by_shares(
        k + trained.total(),
        [shares[name] for name in names],
        least=[max(1, trained[name]) for name in names],  # all gold, else one
        most=[trained[name] + there[name] for name in names],
    )
    return {name: total - trained[name] for name, total in zip(names, totals, strict=True)}


def _weights(slices: Sequence[Slice]) -> Counter[str]:
    """The parts of the slices in the pairs that train: what was captured counts with its K, and the K of the others is
    divided by their shares."""
    k_written = sum(part.k_requested for part in slices if not part.is_captured)
    weights: Counter[str] = Counter()
    for part in slices:
        weights[part.name] += 1_000_000 * part.k_requested if part.is_captured else k_written * part.share_ppm
    return weights


def _pair(spec: Spec, row: Candidate) -> LabeledPair:
    answer = row.label if isinstance(spec.output, LabelOutput) else row.answer
    return LabeledPair(key=row.text, label=answer, agreement=Fraction(row.agreement_ppm or 0, 1_000_000))


def _gold_pair(spec: Spec, row: dict[str, str]) -> LabeledPair:
    """Gold JSON is spelt as the teacher's is: a student learns one spelling."""
    answer = row["output"]
    if isinstance(spec.output, JsonOutput):
        answer = answer_text(parse_answer(answer), spec.output.answer_schema)
    return LabeledPair(key=row["input"], label=answer)


def _shares(spec: Spec) -> dict[str, float] | None:
    """The declared shares: of the labels, else of the slices when each names its label; None when the spec declares
    nothing, or has no labels."""
    if not isinstance(spec.output, LabelOutput):
        return None
    if any(label.share is not None for label in spec.output.labels):
        return target_shares(spec)
    if spec.slices and all(part.label for part in spec.slices):
        shares = dict.fromkeys(label_names(spec), 0.0)
        for part in spec.slices:
            shares[part.label or ""] += part.share
        total = math.fsum(shares.values())  # a spec's shares may be off by a hundredth: 0.33 three times
        return {name: share / total for name, share in shares.items()}
    return None


def _check(spec: Spec, pairs: Sequence[LabeledPair]) -> None:
    missing = sorted(set(label_names(spec)) - {pair.label for pair in pairs})
    if missing:
        raise CustomerError(
            f"No training pair has the label {missing[0]!r}"
            + (f" (nor {len(missing) - 1} others)" if len(missing) > 1 else "")
            + ". Add gold examples or a slice for it, or take the label out.",
            code="label_without_pairs",
        )
