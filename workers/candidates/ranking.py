"""Scores and the ranking signal of a slice's candidates; what a slice should look like, as vectors."""

import numpy as np

from backend.compiles.models import Candidate, Slice
from backend.compiles.states import CandidateState
from backend.domain.answers import candidates as domain
from backend.domain.answers.candidates import rank_signal, with_scores
from backend.domain.spec.parsing import LabelOutput
from workers.embedding.protocol import Embedder, Rows
from workers.scoring.verifier import rank_scores
from workers.step.durable import CompileRun


def stack(blobs: list[bytes | memoryview | None]) -> Rows:
    """Stored vectors as (n, d) float32."""
    rows = [np.frombuffer(bytes(blob), dtype=np.float32) for blob in blobs if blob is not None]
    return np.stack(rows) if rows else np.zeros((0, 1), dtype=np.float32)


def reference_rows(run: CompileRun, slice_row: Slice, embedder: Embedder, gold: list[dict[str, str]]) -> Rows:
    """(m, d) unit rows of what the slice should look like; (0, 1) where no verifier asks for it."""
    if not any(verifier.kind == "similarity" for verifier in run.spec.verifiers):
        return np.zeros((0, 1), dtype=np.float32)
    is_label = isinstance(run.spec.output, LabelOutput)
    texts = [*slice_row.exemplars, *(row["input"] for row in gold if not is_label or row["output"] == slice_row.label)][
        :50
    ]
    return embedder.embed(texts)


def score_slice(run: CompileRun, slice_row: Slice, embedder: Embedder, gold: list[dict[str, str]]) -> None:
    """Score one slice's valid candidates and record which signal ranks them. Same candidates, same scores."""
    with run.transaction():
        rows = list(
            Candidate.objects.filter(tenant_id=run.tenant_id, slice=slice_row, state=CandidateState.VALID).order_by(
                "text_key"
            )
        )
    vectors = stack([row.embedding for row in rows])
    scores = rank_scores(run.spec, [row.text for row in rows], vectors, reference_rows(run, slice_row, embedder, gold))
    values = [None] * len(rows) if scores is None else scores
    ranked = with_scores([_as_value(row, slice_row, score) for row, score in zip(rows, values, strict=True)])
    signal = rank_signal(ranked)
    with run.transaction():
        for row, value in zip(rows, ranked, strict=True):
            row.score, row.signal = value.score, signal
        Candidate.objects.bulk_update(rows, ["score", "signal"], batch_size=500)
        slice_row.signal = signal
        Slice.objects.filter(tenant_id=run.tenant_id, id=slice_row.id).update(signal=signal)


def _as_value(row: Candidate, slice_row: Slice, score: float | None) -> domain.Candidate:
    """A row as the ranking rule needs it. No spec can name a reward model yet, so no candidate has a reward."""
    return domain.Candidate(
        id=str(row.id),
        slice_name=slice_row.name,
        text=row.text,
        logprob=row.logprob,
        n_tokens=row.n_tokens,
        verdict=None if score is None else domain.Verdict(passed=True, score=score),
    )
