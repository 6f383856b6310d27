"""The N-K rejects of a slice, kept as drafts in the transaction of its picks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from backend.compiles.models import Candidate, Slice
from backend.compiles.reactions import openers, temperature_of
from backend.drafts.cache import DraftScope, Reject, admit
from workers.durable import CompileRun
from workers.embedding.sentence import load_embedder
from workers.stages.rounds import first_temperature
from workers.stages.teaching import teaching


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftKeeper:
    """Whose drafts they are, and the identities of the spec's teacher and of its fallback."""

    scope: DraftScope
    teachers: tuple[str, str]


def draft_keeper(run: CompileRun) -> DraftKeeper:
    with teaching(run) as taught:
        teachers = (taught.identity, taught.identity)
    if run.spec.teacher.fallback_model is not None:
        with teaching(run, model=run.spec.teacher.fallback_model) as fallback:
            teachers = (taught.identity, fallback.identity)
    scope = DraftScope(family=run.spec.family, teacher="", embedder=load_embedder().identity)
    return DraftKeeper(scope=scope, teachers=teachers)


def keep_rejects(run: CompileRun, pool: Slice, rejects: Sequence[Candidate], keeper: DraftKeeper) -> None:
    """Each round under the teacher and the temperature that wrote it: another one is another distribution."""
    vector = np.frombuffer(bytes(pool.embedding or b""), dtype=np.float32).tolist()
    for number in sorted({row.round for row in rejects}):
        is_fallback = any(entry["reaction"] == "fallback_model" for entry in openers(pool, number))
        temperature = temperature_of(pool, number, first_ppm=first_temperature(run)) / 1_000_000
        admit(
            run.tenant_id,
            run.compile_id,
            [_reject(row) for row in rejects if row.round == number],
            scope=replace(keeper.scope, teacher=f"{keeper.teachers[is_fallback]}|temperature={temperature:.2f}"),
            slice_name=pool.name,
            slice_vector=vector,
        )


def _reject(row: Candidate) -> Reject:
    return Reject(
        candidate_id=row.id,
        text=row.text,
        text_key=row.text_key,
        score=row.score,
        signal=row.signal,
        logprob=row.logprob,
        token_logprobs=None if row.token_logprobs is None else bytes(row.token_logprobs),
        n_tokens=row.n_tokens,
        cost_microusd=row.cost_microusd,
    )
