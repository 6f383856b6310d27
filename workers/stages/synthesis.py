"""Synthesis, pass 1: N candidates per slice from the teacher, checked as they come.

Candidates come in batches of at most `teacher.concurrency` calls of at most 8 choices. When a slice has its N, two
tells are read and acted on by themselves (facts a.1 of the seeds' public pages): a reject rate over 30 % asks again
with two exemplars; a pool of one or two near-duplicate groups (mode collapse) asks again hotter, twice, then asks the
fallback model. Each is recorded in `Slice.reactions` and as a warning event.
"""

import math
from typing import Any

import numpy as np
from django.db.models import F, Func, IntegerField

from backend.blobs import get_jsonl
from backend.compiles.models import Candidate, Compile, Slice, TeacherCall
from backend.domain.candidates import text_key
from backend.domain.canonical import sha256_of
from backend.domain.clustering import n_near_duplicate_groups
from backend.domain.estimates import CHOICES_PER_CALL
from backend.domain.lifecycle import StepName
from backend.domain.spec import SliceSpec
from workers.durable import CompileRun
from workers.embedding.protocol import Embedder
from workers.embedding.sentence import load_embedder
from workers.scoring.verifier import check_text, gate_reasons
from workers.spending import settle
from workers.stages.embedding_usage import embedding_fact
from workers.stages.outcome import Done, finish_step
from workers.stages.teaching import Taught, seed_of, teaching
from workers.teacher_calls import MadeCall, PlannedCall, call_batch
from workers.teachers.prompts import candidate_request, parse_message

MAX_REJECT_SHARE = 0.30
COLLAPSED_GROUPS = 2
MAX_HOTTER_ROUNDS = 2
HOTTER = 0.3
MAX_TEMPERATURE = 2.0


def run_synthesis(run: CompileRun) -> Done:
    embedder = load_embedder()
    heldout = heldout_keys(run)
    pools = _pools(run)
    for pool in pools:
        if pool.is_captured:
            embed_pool(run, pool, embedder)
        else:
            synthesize_pool(run, pool, embedder, heldout)
    with run.fenced() as compile:
        done = _summary(run)
        finish_step(run, compile, StepName.SYNTHESIS, done)
    return done


def synthesize_pool(
    run: CompileRun,
    pool: Slice,
    embedder: Embedder,
    heldout: frozenset[str],
    *,
    step: StepName = StepName.SYNTHESIS,
) -> None:
    """Bring one slice to its N candidates and react to what the pool looks like. Safe to run again at any point. `step`
    is the one that asks and pays."""
    while not pool.is_synthesized:
        fallback = run.spec.teacher.fallback_model if _reacted(pool, "fallback_model") else None
        with teaching(run, model=fallback) as taught:
            _fill_round(run, pool, taught, heldout, step)
        embed_pool(run, pool, embedder, step=step)
        reaction = _reaction(run, pool)
        with run.fenced() as compile:
            _react(run, compile, pool, reaction, step)


def _fill_round(run: CompileRun, pool: Slice, taught: Taught, heldout: frozenset[str], step: StepName) -> None:
    """Ask for N more candidates, a batch at a time; a batch that is journaled already costs nothing."""

    def save(compile: Compile, calls: list[MadeCall]) -> None:
        _save_candidates(run, compile, pool, calls, heldout, step)

    exemplars = _exemplars(run, pool) if _reacted(pool, "exemplars") else tuple(pool.exemplars)
    while plans := _next_batch(run, pool, exemplars):
        call_batch(run, step, taught.teacher, taught.price, plans, save)


def _next_batch(run: CompileRun, pool: Slice, exemplars: tuple[str, ...]) -> list[PlannedCall]:
    """The calls that come after those whose answers this round has, none when it has enough. Many servers give one
    choice whatever `n` says: what is missing is asked for again, in calls of the size that was given."""
    prefix = f"synthesis:{pool.position}:{pool.round}"
    n_given: Func = Func(F("choices"), function="jsonb_array_length", output_field=IntegerField())
    with run.fenced():
        calls = TeacherCall.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id, state="applied")
        made = list(calls.filter(key__startswith=f"{prefix}:").values_list("n", n_given))
    wanted = pool.n_candidates if pool.round == 0 else math.ceil(pool.n_candidates / 2)
    missing = wanted - sum(given for _, given in made)
    if len(made) >= wanted:  # an answer has at least one choice
        return []
    per_call = max(1, min([CHOICES_PER_CALL, *(given for asked, given in made if given < asked)]))
    sizes = [min(per_call, missing - at) for at in range(0, missing, per_call)][: run.spec.teacher.concurrency]
    return [
        PlannedCall(
            key=f"{prefix}:{nth}",
            request=candidate_request(
                run.spec,
                _as_spec(pool),
                n=size,
                temperature=pool.temperature_ppm / 1_000_000,
                seed=seed_of(run, "candidates", pool.name, pool.round, nth),
                exemplars=exemplars,
            ),
        )
        for nth, size in enumerate(sizes, start=len(made))
    ]


def _save_candidates(
    run: CompileRun, compile: Compile, pool: Slice, calls: list[MadeCall], heldout: frozenset[str], step: StepName
) -> None:
    choices = [(call, choice) for call in calls for choice in call.choices]
    rows: dict[str, Candidate] = {}
    n_rejected = 0
    for call, choice in choices:
        text = parse_message(choice["text"]) or ""
        key = text_key(text)
        reasons = check_text(text, heldout, key) or gate_reasons(run.spec, text)
        n_rejected += bool(reasons)
        rows.setdefault(key, _candidate(run, compile, pool, call, choice, text, key, reasons))
    known = set(
        Candidate.objects.filter(tenant_id=run.tenant_id, compile=compile, text_key__in=list(rows)).values_list(
            "text_key", flat=True
        )
    )
    Candidate.objects.bulk_create([row for key, row in rows.items() if key not in known])
    pool.n_generated += len(choices)
    pool.n_rejected += n_rejected
    pool.n_duplicates += len(choices) - len(rows) + len(known)
    pool.save()
    total = sum(s.n_candidates for s in Slice.objects.filter(tenant_id=run.tenant_id, compile=compile))
    done = sum(s.n_generated for s in Slice.objects.filter(tenant_id=run.tenant_id, compile=compile))
    run.progress(step, done=min(done, total), total=total, message=f"{pool.name}: {pool.n_generated} candidates")


def _candidate(
    run: CompileRun,
    compile: Compile,
    pool: Slice,
    call: MadeCall,
    choice: dict[str, Any],
    text: str,
    key: str,
    reasons: tuple[str, ...],
) -> Candidate:
    logprobs = choice["token_logprobs"]
    return Candidate(
        tenant_id=run.tenant_id,
        compile=compile,
        slice=pool,
        text=text,
        text_key=key,
        origin="fresh",
        round=pool.round,
        state="rejected" if reasons else "valid",
        reasons=list(reasons),
        logprob=choice["logprob"],
        token_logprobs=None if logprobs is None else np.asarray(logprobs, dtype=np.float16).tobytes(),
        n_tokens=choice["n_tokens"],
        cost_microusd=call.cost_microusd // max(1, len(call.choices)),
    )


def embed_pool(run: CompileRun, pool: Slice, embedder: Embedder, *, step: StepName = StepName.SYNTHESIS) -> None:
    """Give every valid candidate of the slice its vector (and the step its embedding cost)."""
    rows_without = Candidate.objects.filter(tenant_id=run.tenant_id, slice=pool, state="valid", embedding=None)
    query = rows_without.order_by("text_key")  # who shares a batch moves the last bits: not left to the ids
    with run.fenced():
        rows = list(query)
    for first in range(0, len(rows), 512):
        part = rows[first : first + 512]
        vectors = embedder.embed([row.text for row in part])
        fact = embedding_fact(run, part, embedder)
        run.stop.check()
        with run.fenced() as compile:
            for row, vector in zip(part, vectors, strict=True):
                row.embedding = vector.tobytes()
            Candidate.objects.bulk_update(part, ["embedding"])
            settle(compile, step, [fact])


def _reaction(run: CompileRun, pool: Slice) -> str | None:
    """What the pool tells: "exemplars", "hotter", "fallback_model", "collapsed" (nothing left to try) or None."""
    with run.fenced():
        vectors = list(
            Candidate.objects.filter(tenant_id=run.tenant_id, slice=pool, state="valid")
            .order_by("text_key")
            .values_list("embedding", flat=True)
        )
    if pool.n_rejected > MAX_REJECT_SHARE * pool.n_generated and not _reacted(pool, "exemplars"):
        return "exemplars"
    rows = np.array([np.frombuffer(v, dtype=np.float32) for v in vectors])
    if pool.n_candidates < 4 or (len(rows) and n_near_duplicate_groups(rows) > COLLAPSED_GROUPS):
        return None
    n_hotter = sum(r["reaction"] == "hotter" for r in pool.reactions)
    if n_hotter < MAX_HOTTER_ROUNDS and pool.temperature_ppm < MAX_TEMPERATURE * 1_000_000:
        return "hotter"
    if run.spec.teacher.fallback_model and not _reacted(pool, "fallback_model"):
        return "fallback_model"
    return "collapsed"


def _react(run: CompileRun, compile: Compile, pool: Slice, reaction: str | None, step: StepName) -> None:
    if reaction is None or reaction == "collapsed":
        pool.is_synthesized = True
    else:
        pool.round += 1
    if reaction is not None:
        if reaction == "hotter":
            pool.temperature_ppm = min(pool.temperature_ppm + round(HOTTER * 1e6), round(MAX_TEMPERATURE * 1e6))
        pool.reactions = [
            *pool.reactions,
            {
                "reaction": reaction,
                "round": pool.round,
                "n_generated": pool.n_generated,
                "n_rejected": pool.n_rejected,
                "temperature_ppm": pool.temperature_ppm,
            },
        ]
        run.warn(*_REACTIONS[reaction], slice=pool.name, step=step.value)
    pool.save()


_REACTIONS = {
    "exemplars": (
        "high_reject_rate",
        "More than 30 % of the candidates failed the checks; asking again with two exemplars.",
    ),
    "hotter": ("mode_collapse", "The candidates are variations of one or two; asking again at a higher temperature."),
    "fallback_model": ("mode_collapse", "Two hotter rounds did not help; asking the fallback model."),
    "collapsed": (
        "collapse_detected",
        "The candidates are variations of one or two. Widen the slice's hint, split it, or name a fallback_model.",
    ),
}


def _reacted(pool: Slice, reaction: str) -> bool:
    return any(r["reaction"] == reaction for r in pool.reactions)


def _exemplars(run: CompileRun, pool: Slice) -> tuple[str, ...]:
    """Two texts that show what is wanted: the slice's own exemplars, else training gold of its label."""
    if len(pool.exemplars) >= 2:
        return tuple(pool.exemplars[:2])
    gold = get_jsonl(run.tenant_id, _gold_digests(run)["gold_train"])
    fitting = [row["input"] for row in gold if row["output"] == pool.label]
    return tuple([*pool.exemplars, *fitting][:2])


def _gold_digests(run: CompileRun) -> dict[str, str]:
    with run.fenced():
        digests: dict[str, str] = run.step(StepName.SLICING).output["digests"]
    return digests


def heldout_keys(run: CompileRun) -> frozenset[str]:
    """The texts that no candidate may repeat."""
    rows = get_jsonl(run.tenant_id, _gold_digests(run)["gold_heldout"])
    return frozenset(text_key(row["input"]) for row in rows)


def _pools(run: CompileRun) -> list[Slice]:
    with run.fenced():
        return list(Slice.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id).order_by("position"))


def _as_spec(pool: Slice) -> SliceSpec:
    return SliceSpec(name=pool.name, share=pool.share_ppm / 1_000_000, hint=pool.hint, label=pool.label or None)


def _summary(run: CompileRun) -> Done:
    pools = Slice.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id).order_by("position")
    keys = Candidate.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id).order_by("text_key")
    facts = {
        "slices": [
            {
                "name": p.name,
                "n_generated": p.n_generated,
                "n_rejected": p.n_rejected,
                "n_duplicates": p.n_duplicates,
                "rounds": p.round + 1,
                "reactions": [r["reaction"] for r in p.reactions],
            }
            for p in pools
        ],
    }
    return Done(
        inputs=_gold_digests_of(run),
        outputs={"candidates": sha256_of(list(keys.values_list("text_key", flat=True)))},
        facts=facts,
    )


def _gold_digests_of(run: CompileRun) -> dict[str, str]:
    digests: dict[str, str] = run.step(StepName.SLICING).output["digests"]
    return digests
