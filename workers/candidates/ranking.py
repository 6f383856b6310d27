"""Scores and the ranking signal of a slice's candidates; what a slice should look like, as vectors."""

import numpy as np

from backend.compiles.models import Candidate, Slice
from backend.compiles.states import CandidateState
from backend.domain.answers import candidates as domain
from backend.domain.answers.candidates import rank_signal, with_scores
from backend.domain.spec.parsing import LabelOutput
from workers.durable import CompileRun
from workers.embedding.protocol import Embedder, Rows
from workers.scoring.verifier import rank_scores


def stack(blobs: list[bytes | memoryview | None]) -> Rows:
    """Stored vectors as (n, d) float32."""
    rows = [np.frombuffer(bytes(blob), dtype=np.float32) for blob in blobs if blob is not None]
    return np.stack(rows) if rows else np.zeros((0, 1), dtype=np.float32)


def reference_rows(run: CompileRun, pool: Slice, embedder: Embedder, gold: list[dict[str, str]]) -> Rows:
    """(m, d) unit rows of what the slice should look like; (0, 1) where no verifier asks for it."""
    if not any(verifier.kind == "similarity" for verifier in run.spec.verifiers):
        return np.zeros((0, 1), dtype=np.float32)
    is_label = isinstance(run.spec.output, LabelOutput)
    texts = [*pool.exemplars, *(row["input"] for row in gold if not is_label or row["output"] == pool.label)][:50]
    return embedder.embed(texts)


def score_pool(run: CompileRun, pool: Slice, embedder: Embedder, gold: list[dict[str, str]]) -> None:
    """Score one slice's valid candidates and record which signal ranks them. Same candidates, same scores."""
    with run.fenced():
        rows = list(
            Candidate.objects.filter(tenant_id=run.tenant_id, slice=pool, state=CandidateState.VALID).order_by(
                "text_key"
            )
        )
    vectors = stack([row.embedding for row in rows])
    scores = rank_scores(run.spec, [row.text for row in rows], vectors, reference_rows(run, pool, embedder, gold))
    values = [None] * len(rows) if scores is None else scores
    ranked = with_scores([_as_value(row, pool, score) for row, score in zip(rows, values, strict=True)])
    signal = rank_signal(ranked)
    with run.fenced():
        for row, value in zip(rows, ranked, strict=True):
            row.score, row.signal = value.score, signal
        Candidate.objects.bulk_update(rows, ["score", "signal"], batch_size=500)
        pool.signal = signal
        Slice.objects.filter(tenant_id=run.tenant_id, id=pool.id).update(signal=signal)


def _as_value(row: Candidate, pool: Slice, score: float | None) -> domain.Candidate:
    """What the ranking rule needs of a row. No spec can name a reward model yet, so no candidate has a reward."""
    return domain.Candidate(
        id=str(row.id),
        slice_name=pool.name,
        text=row.text,
        logprob=row.logprob,
        n_tokens=row.n_tokens,
        verdict=None if score is None else domain.Verdict(passed=True, score=score),
    )
