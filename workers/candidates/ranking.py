"""Scores and the ranking signal of a slice's candidates; what a slice should look like, as vectors."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from backend.compiles.models import Candidate, Slice
from backend.compiles.states import CandidateState
from backend.domain.answers import candidates as domain
from backend.domain.answers.candidates import rank_signal, with_scores
from backend.domain.answers.input_form import InputForm
from backend.domain.answers.rewards import Calibration
from backend.domain.spec.parsing import LabelOutput, effective_slices, text_verifiers
from workers.candidates.rewards import raw_reward
from workers.embedding.protocol import Embedder, Rows
from workers.scoring.default_verifier import input_form
from workers.scoring.verifier import has_ranking, rank_scores
from workers.step.durable import CompileRun

Gold = list[dict[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """The grounds of the scores of a compile's slices. `form` is None where the spec's own verifiers rank,
    `calibration` where it names no reward."""

    embedder: Embedder
    gold: Gold
    form: InputForm | None
    calibration: Calibration | None


def ranking_of(run: CompileRun, embedder: Embedder, gold: Gold, calibration: Calibration | None) -> Ranking:
    """Prepare what the compile's slices are scored with: its inputs have the form of training gold and exemplars."""
    form = None
    if not has_ranking(run.spec):
        exemplars = [text for part in effective_slices(run.spec) for text in part.exemplars]
        form = input_form(run.spec, [*(row["input"] for row in gold), *exemplars])
    return Ranking(embedder=embedder, gold=gold, form=form, calibration=calibration)


def stack(blobs: list[bytes | memoryview | None]) -> Rows:
    """Stored vectors as (n, d) float32."""
    rows = [np.frombuffer(bytes(blob), dtype=np.float32) for blob in blobs if blob is not None]
    return np.stack(rows) if rows else np.zeros((0, 1), dtype=np.float32)


def reference_rows(run: CompileRun, slice_row: Slice, embedder: Embedder, gold: Gold) -> Rows:
    """(m, d) unit rows of what the slice should look like; (0, 1) where no verifier asks for it."""
    if not any(verifier.kind == "similarity" for verifier in text_verifiers(run.spec)):
        return np.zeros((0, 1), dtype=np.float32)
    is_label = isinstance(run.spec.output, LabelOutput)
    texts = [*slice_row.exemplars, *(row["input"] for row in gold if not is_label or row["output"] == slice_row.label)][
        :50
    ]
    return embedder.embed(texts)


def score_slice(run: CompileRun, slice_row: Slice, ranking: Ranking) -> None:
    """Score one slice's valid candidates and record which signal each score is from. Same candidates, same scores."""
    with run.transaction():
        rows = list(
            Candidate.objects.filter(tenant_id=run.tenant_id, slice=slice_row, state=CandidateState.VALID).order_by(
                "text_key"
            )
        )
    scores = _verifier_scores(run, slice_row, rows, ranking)
    values = [_as_value(row, slice_row, score, ranking.calibration) for row, score in zip(rows, scores, strict=True)]
    ranked, signal = with_scores(values), rank_signal(values)
    with run.transaction():
        for row, value in zip(rows, ranked, strict=True):
            row.score, row.signal = value.score, value.signal
        Candidate.objects.bulk_update(rows, ["score", "signal"], batch_size=500)
        slice_row.signal = signal
        Slice.objects.filter(tenant_id=run.tenant_id, id=slice_row.id).update(signal=signal)


def _verifier_scores(
    run: CompileRun, slice_row: Slice, rows: Sequence[Candidate], ranking: Ranking
) -> Sequence[float | None]:
    """The scores of the spec's verifiers, or of the default one where none of them ranks."""
    texts = [row.text for row in rows]
    if ranking.form is not None:
        return [ranking.form.score(text) for text in texts]
    vectors, reference = (
        stack([row.embedding for row in rows]),
        reference_rows(run, slice_row, ranking.embedder, ranking.gold),
    )
    return rank_scores(run.spec, texts, vectors, reference) or [None] * len(rows)


def _as_value(
    row: Candidate, slice_row: Slice, score: float | None, calibration: Calibration | None
) -> domain.Candidate:
    """A row as the ranking rule needs it."""
    raw = raw_reward(row)
    return domain.Candidate(
        id=str(row.id),
        slice_name=slice_row.name,
        text=row.text,
        logprob=row.logprob,
        n_tokens=row.n_tokens,
        reward=None if raw is None or calibration is None else calibration.score(raw),
        verdict=None if score is None else domain.Verdict(passed=True, score=score),
    )
