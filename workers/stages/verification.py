"""Verification: every valid candidate gets its score, and the slice its ranking signal: verifier if the spec names one,
else log-prob, else none."""

from collections import Counter

import numpy as np

from backend.blobs import get_jsonl
from backend.compiles.models import Candidate, Slice
from backend.domain.answers import candidates as domain
from backend.domain.answers.candidates import rank_signal, with_scores
from backend.domain.canonical import sha256_of
from backend.domain.lifecycle import StepName
from backend.domain.spec.parsing import LabelOutput
from workers.durable import CompileRun
from workers.embedding.protocol import Embedder, Rows
from workers.embedding.sentence import load_embedder
from workers.scoring.verifier import rank_scores
from workers.stages.outcome import Done, finish_step


def run_verification(run: CompileRun) -> Done:
    embedder = load_embedder()
    with run.fenced():
        pools = list(Slice.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id).order_by("position"))
        gold_train = run.step(StepName.SLICING).output["digests"]["gold_train"]
    gold = get_jsonl(run.tenant_id, gold_train)
    for done, pool in enumerate(pools, start=1):
        score_pool(run, pool, embedder, gold)
        with run.fenced():
            run.progress(
                StepName.VERIFICATION, done=done, total=len(pools), message=f"{pool.name}: ranked by {pool.signal}"
            )
    with run.fenced() as compile:
        done_step = _summary(run, pools)
        finish_step(run, compile, StepName.VERIFICATION, done_step)
    return done_step


def score_pool(run: CompileRun, pool: Slice, embedder: Embedder, gold: list[dict[str, str]]) -> None:
    """Score one slice's valid candidates and record which signal ranks them. Same candidates, same scores."""
    with run.fenced():
        rows = list(Candidate.objects.filter(tenant_id=run.tenant_id, slice=pool, state="valid").order_by("text_key"))
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


def _summary(run: CompileRun, pools: list[Slice]) -> Done:
    rows = list(
        Candidate.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id)
        .order_by("text_key")
        .values_list("text_key", "state", "score", "reasons")
    )
    reasons = Counter(reason for _, _, _, found in rows for reason in found)
    return Done(
        inputs={"candidates": sha256_of([key for key, *_ in rows])},
        outputs={
            "scores": sha256_of(
                [[key, state, None if score is None else f"{score:.6f}"] for key, state, score, _ in rows]
            )
        },
        facts={
            "n_candidates": len(rows),
            "n_valid": sum(state == "valid" for _, state, _, _ in rows),
            "rejected_for": dict(sorted(reasons.items())),
            "signal": {pool.name: pool.signal for pool in pools},
        },
    )
