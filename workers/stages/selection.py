"""Selection, carried out: N candidates of a slice in, K picks out, the N-K rejects kept as drafts in the same
transaction."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from backend.blobs import get_jsonl
from backend.compiles.models import Candidate, Compile, Slice
from backend.domain.canonical import sha256_of
from backend.domain.errors import CustomerError
from backend.domain.lifecycle import StepName
from backend.domain.selection import Selection, select
from backend.drafts.cache import DraftScope, Reject, admit
from backend.drafts.models import Draft
from workers.durable import CompileRun
from workers.embedding.sentence import load_embedder
from workers.stages.outcome import Done, finish_step
from workers.stages.synthesis import HOTTER, MAX_TEMPERATURE, heldout_keys, synthesize_pool
from workers.stages.teaching import teaching
from workers.stages.verification import score_pool, stack

MAX_RESYNTHESES = 2


def run_selection(run: CompileRun) -> Done:
    with teaching(run) as taught:
        teachers = (taught.identity, taught.identity)
    if run.spec.teacher.fallback_model is not None:
        with teaching(run, model=run.spec.teacher.fallback_model) as fallback:
            teachers = (taught.identity, fallback.identity)
    scope = DraftScope(family=run.spec.family, teacher="", embedder=load_embedder().identity)
    with run.fenced():
        pools = list(Slice.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id).order_by("position"))
    for done, pool in enumerate(pools, start=1):
        if pool.selection is None:
            _select_pool(run, pool, scope, teachers)
        with run.fenced():
            message = f"{pool.name}: {pool.k_actual} of {pool.n_candidates}"
            run.progress(StepName.SELECTION, done=done, total=len(pools), message=message)
    with run.fenced() as compile:
        done_step = _summary(run, pools)
        finish_step(run, compile, StepName.SELECTION, done_step)
    return done_step


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chosen:
    """`first` is the selection at the K that was asked for; `selection` is what counts, at the K it came to."""

    first: Selection
    selection: Selection
    mitigation: str


def _select_pool(run: CompileRun, pool: Slice, scope: DraftScope, teachers: tuple[str, str]) -> None:
    chosen = None
    while chosen is None:
        _finish_round(run, pool)
        with run.fenced():
            rows = list(
                Candidate.objects.filter(tenant_id=run.tenant_id, slice=pool, state="valid").order_by("text_key")
            )
        chosen = _choose(run, pool, rows)
        if chosen is None:
            _open_round(run, pool)
    with run.fenced() as compile:
        _save(run, compile, pool, rows, chosen)
        if run.spec.draft_cache.enabled and not pool.is_captured:
            _keep_rejects(run, pool, [row for row in rows if row.state == "dropped"], scope, teachers)


def _choose(run: CompileRun, pool: Slice, rows: Sequence[Candidate]) -> _Chosen | None:
    """Select, and answer a cluster gap as `on_gap` says; None asks for another round of candidates."""
    first = _select(run, rows, pool.k_requested)
    as_asked = _Chosen(first=first, selection=first, mitigation="none")
    n_groups = first.report.n_groups
    if not first.report.gap_detected:
        return as_asked
    if run.spec.sampling.on_gap == "fail":
        raise CustomerError(
            f"Slice {pool.name!r} has {n_groups} distinct groups for K = {pool.k_requested}. Lower k_select, widen the "
            "slice's hint, or set on_gap to drop_k.",
            code="cluster_gap",
        )
    n_rounds = sum(r["reaction"] == "resynthesize" for r in pool.reactions)
    if run.spec.sampling.on_gap == "resynthesize" and not pool.is_captured and n_rounds < MAX_RESYNTHESES:
        return None
    if n_groups >= min(pool.k_requested, len(rows)):
        return as_asked
    # the number to drop to is that of near-duplicate groups: dropping to the silhouette's count was measured to lose up
    # to 12 points
    return _Chosen(first=first, selection=_select(run, rows, max(1, n_groups)), mitigation="drop_k")


def _select(run: CompileRun, rows: Sequence[Candidate], k: int) -> Selection:
    sampling = run.spec.sampling
    return select(
        stack([row.embedding for row in rows]),
        [0.0 if row.score is None else row.score for row in rows],
        [row.text_key for row in rows],
        k=k,
        method=sampling.method,
        score_floor=sampling.score_floor,
        diversity_lambda=sampling.diversity_lambda,
        min_distance=sampling.min_distance,
    )


def _open_round(run: CompileRun, pool: Slice) -> None:
    """One more, hotter round of candidates for this slice."""
    with run.fenced():
        pool.round += 1
        pool.is_synthesized = False
        pool.temperature_ppm = min(pool.temperature_ppm + round(HOTTER * 1e6), round(MAX_TEMPERATURE * 1e6))
        pool.reactions = [
            *pool.reactions,
            {"reaction": "resynthesize", "round": pool.round, "temperature_ppm": pool.temperature_ppm},
        ]
        pool.save()
        run.warn("cluster_gap", "Fewer natural clusters than K; asking for more candidates, hotter.", slice=pool.name)


def _finish_round(run: CompileRun, pool: Slice) -> None:
    """Have every candidate of the round that was opened last, in this process or in one that died, written, checked and
    scored."""
    embedder = load_embedder()
    if not pool.is_synthesized:
        synthesize_pool(run, pool, embedder, heldout_keys(run), step=StepName.SELECTION)
    valid = Candidate.objects.filter(tenant_id=run.tenant_id, slice=pool, state="valid")
    with run.fenced():
        gold_train = run.step(StepName.SLICING).output["digests"]["gold_train"]
        is_scored = not valid.filter(score=None).exists()
    if not is_scored:
        score_pool(run, pool, embedder, get_jsonl(run.tenant_id, gold_train))


def _save(run: CompileRun, compile: Compile, pool: Slice, rows: list[Candidate], chosen: _Chosen) -> None:
    picks = set(chosen.selection.picks)
    first, report = chosen.first.report, chosen.selection.report
    for i, row in enumerate(rows):
        row.state = "picked" if i in picks else "dropped"
        row.cluster = report.cluster_of[i] if i < len(report.cluster_of) else None
    Candidate.objects.bulk_update(rows, ["state", "cluster"], batch_size=500)
    pool.k_actual = len(picks)
    value: dict[str, Any] = report.to_json() | {"mitigation": chosen.mitigation, "signal": pool.signal}
    value |= {"k_requested": pool.k_requested, "k_actual": len(picks)}
    if chosen.mitigation != "none":
        value["at_k_requested"] = {k: v for k, v in first.to_json().items() if k != "cluster_of"}
    pool.selection = value
    pool.save()
    if first.gap_detected:
        run.warn(
            "cluster_gap",
            f"Slice {pool.name}: {first.k_natural} natural clusters, {first.n_groups} distinct groups for K = "
            f"{pool.k_requested}; keeping {len(picks)} (mitigation: {chosen.mitigation}).",
            slice=pool.name,
            k_requested=pool.k_requested,
            k_actual=len(picks),
        )


def _keep_rejects(
    run: CompileRun, pool: Slice, rejects: Sequence[Candidate], scope: DraftScope, teachers: tuple[str, str]
) -> None:
    """As drafts, each round under the teacher and the temperature that wrote it: another one is another
    distribution."""
    vector = np.frombuffer(bytes(pool.embedding or b""), dtype=np.float32).tolist()
    for number in sorted({row.round for row in rejects}):
        before = [r for r in pool.reactions if r["round"] <= number]
        teacher = teachers[any(r["reaction"] == "fallback_model" for r in before)]
        first = round(run.spec.sampling.temperature_inputs * 1_000_000)
        temperature = (before[-1]["temperature_ppm"] if before else first) / 1_000_000
        admit(
            run.tenant_id,
            run.compile_id,
            [_reject(row) for row in rejects if row.round == number],
            scope=replace(scope, teacher=f"{teacher}|temperature={temperature:.2f}"),
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


def _summary(run: CompileRun, pools: list[Slice]) -> Done:
    picked = Candidate.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id, state="picked")
    keys = list(picked.order_by("text_key").values_list("text_key", flat=True))
    scores = Candidate.objects.filter(
        tenant_id=run.tenant_id, compile_id=run.compile_id, state__in=("picked", "dropped")
    )
    return Done(
        inputs={"scored": sha256_of(list(scores.order_by("text_key").values_list("text_key", flat=True)))},
        outputs={"picks": sha256_of(keys)},
        facts={
            "method": run.spec.sampling.method,
            "n_picked": len(keys),
            "n_drafts": 0 if not run.spec.draft_cache.enabled else _n_drafts(run),
            "slices": [{"name": p.name} | _public(p.selection or {}) for p in pools],
        },
    )


def _n_drafts(run: CompileRun) -> int:
    return Draft.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id).count()


def _public(report: dict[str, Any]) -> dict[str, Any]:
    """The report without its per-candidate columns: those stand in the candidates."""
    return {name: value for name, value in report.items() if name not in ("cluster_of", "picks")}
