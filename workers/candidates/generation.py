"""One round of candidates for a slice: asked of the teacher, checked as they come, embedded.

Candidates come in batches of at most `teacher.concurrency` calls of at most 8 choices, or as many as the teacher's
dialect takes. Which slice gets which round is decided by `synthesis`, by `mitigation` where a selection finds too few
distinct ones, and by what a plan buys. Everything here may be run again at any point: what is journaled is not asked
for twice.
"""

import math
from typing import Any

import numpy as np
from django.db.models import F, Func, IntegerField

from backend.blobs import get_jsonl
from backend.compiles.models import Candidate, Compile, Slice, TeacherCall
from backend.compiles.reactions import first_round, note, openers, temperature_of, times
from backend.compiles.states import CANDIDATE_CALLS, CallState, CandidateState, state_when_written
from backend.domain.answers.candidates import text_key
from backend.domain.lifecycle import StepName
from backend.domain.planning.step_outputs import SlicingOut
from backend.domain.planning.teacher_estimates import CHOICES_PER_CALL
from backend.domain.spec.defaults import dialect_of
from backend.domain.spec.parsing import LabelOutput
from workers.candidates.embedding_usage import embedding_fact
from workers.candidates.engine_proposals import engine_counts, with_proposals
from workers.candidates.slices import slice_spec
from workers.embedding.protocol import Embedder
from workers.scoring.verifier import check_text, gate_reasons
from workers.step.batch_planning import StepBatches
from workers.step.durable import CompileRun
from workers.step.spending import capture
from workers.step.teacher_calls import MadeCall, PlannedCall, call_batch
from workers.step.teacher_profile import caps_of
from workers.step.teacher_session import TeacherSession, seed_of, teacher_session
from workers.teachers.prompts.candidate_and_label import candidate_request, parse_message
from workers.teachers.protocol import CompletionRequest, TeacherFailed

HOTTER = 0.3
MAX_TEMPERATURE = 2.0


def add_round(run: CompileRun, slice_row: Slice, embedder: Embedder, heldout: frozenset[str], step: StepName) -> None:
    """Write the round that selection, or a plan, opened. A teacher that refuses it (some take no high temperature) does
    not end the compile: the round ends with what there is."""
    refusal = None
    with teacher_session(run, model=model_of(run, slice_row)) as session:
        try:
            fill_round(run, slice_row, session, heldout, step)
        except TeacherFailed as error:
            if error.retryable:
                raise
            refusal = error.code
    embed_slice(run, slice_row, embedder, step)
    with run.transaction():
        slice_row.is_synthesized = True
        if refusal is not None:
            note(slice_row, "refused", failure=refusal)
            slice_row.temperature_ppm = temperature_of(slice_row, slice_row.round - 1, first_ppm=first_temperature(run))
        slice_row.save()


def first_temperature(run: CompileRun) -> int:
    return round(run.spec.sampling.temperature_inputs * 1_000_000)


def model_of(run: CompileRun, slice_row: Slice) -> str | None:
    """The model that the slice's next round asks where it is not the spec's first: its fallback."""
    return run.spec.teacher.fallback_model if times(slice_row, "fallback_model") else None


def fill_round(
    run: CompileRun,
    slice_row: Slice,
    session: TeacherSession,
    heldout: frozenset[str],
    step: StepName,
    *,
    batches: StepBatches | None = None,
) -> bool:
    """Ask for N more candidates, a batch at a time; a batch that is journaled already costs nothing. False where the
    rest waits for `batches`."""

    def save(compile: Compile, calls: list[MadeCall]) -> None:
        _save_candidates(run, compile, slice_row, calls, heldout, step)

    exemplars = shown_exemplars(run, slice_row)
    width = run.spec.teacher.concurrency
    with engine_counts(run, slice_row, session):
        while plans := _next_batch(run, slice_row, exemplars, width=width):
            if batches is not None and batches.defers(
                session, plans, lambda: _next_batch(run, slice_row, exemplars, width=slice_row.n_candidates)
            ):
                return False
            call_batch(run, step, session.teacher, session.price, plans, save)
    return True


def _next_batch(run: CompileRun, slice_row: Slice, exemplars: tuple[str, ...], *, width: int) -> list[PlannedCall]:
    """The next `width` calls after those whose answers this round has, none when it has enough. Many servers give one
    choice whatever `n` says: what is missing is asked for again, in calls of the size that was given."""
    prefix = f"{CANDIDATE_CALLS}{slice_row.position}:{slice_row.round}"
    n_choices: Func = Func(F("choices"), function="jsonb_array_length", output_field=IntegerField())
    with run.transaction():
        calls = TeacherCall.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id, state=CallState.APPLIED)
        made = list(calls.filter(key__startswith=f"{prefix}:").values_list("n", n_choices))
    wanted = round_size(slice_row)
    missing = wanted - sum(n for _, n in made)
    if len(made) >= wanted:  # an answer has at least one choice
        return []
    most = min(CHOICES_PER_CALL, dialect_of(run.spec.teacher).max_n)
    per_call = max(1, min([most, *(n for n_asked, n in made if n < n_asked)]))
    sizes = [min(per_call, missing - at) for at in range(0, missing, per_call)][:width]
    return [
        PlannedCall(
            key=f"{prefix}:{nth}",
            request=request_of(run, slice_row, size, exemplars, nth=nth),
        )
        for nth, size in enumerate(sizes, start=len(made))
    ]


def round_size(slice_row: Slice) -> int:
    """The number of candidates that the open round asks for: N in the slice's first, less the drafts that entered and
    those that count in the place of others, then half of N."""
    if slice_row.round != first_round(slice_row):
        return later_round_size(slice_row)
    plan, n_there = slice_row.offer_plan, int(slice_row.n_from_drafts)
    if plan is not None and plan.n_pooled:
        n_there = plan.n_free + plan.n_counted
    return max(0, int(slice_row.n_candidates) - n_there)


def later_round_size(slice_row: Slice) -> int:
    return math.ceil(int(slice_row.n_candidates) / 2)


def request_of(run: CompileRun, slice_row: Slice, n: int, exemplars: tuple[str, ...], *, nth: int) -> CompletionRequest:
    """The `nth` call of the slice's open round."""
    request = candidate_request(
        run.spec,
        slice_spec(slice_row),
        n=n,
        temperature=slice_row.temperature_ppm / 1_000_000,
        seed=seed_of(run, "candidates", slice_row.name, slice_row.round, nth),
        exemplars=exemplars,
    )
    return with_proposals(run, slice_row, request)


def _save_candidates(
    run: CompileRun, compile: Compile, slice_row: Slice, calls: list[MadeCall], heldout: frozenset[str], step: StepName
) -> None:
    choices = [(call, choice) for call in calls for choice in call.choices]
    rows: dict[str, Candidate] = {}
    n_rejected = 0
    for call, choice in choices:
        text = parse_message(choice["text"]) or ""
        key = text_key(text)
        reasons = _broken_off(choice) or check_text(text, heldout, key) or gate_reasons(run.spec, text)
        n_rejected += bool(reasons)
        rows.setdefault(key, _candidate(run, compile, slice_row, call, choice, text, key, reasons))
    known = set(
        Candidate.objects.filter(tenant_id=run.tenant_id, compile=compile, text_key__in=list(rows)).values_list(
            "text_key", flat=True
        )
    )
    Candidate.objects.bulk_create([row for key, row in rows.items() if key not in known])
    slice_row.n_generated += len(choices)
    slice_row.n_rejected += n_rejected
    slice_row.n_duplicates += len(choices) - len(rows) + len(known)
    slice_row.save()
    slices = list(Slice.objects.filter(tenant_id=run.tenant_id, compile=compile))
    total = sum(s.n_candidates for s in slices)
    done = sum(s.n_generated + s.n_candidates - round_size(s) for s in slices if s.round == first_round(s))
    done += sum(s.n_generated for s in slices if s.round != first_round(s))
    run.progress(
        step, done=min(done, total), total=total, message=f"{slice_row.name}: {slice_row.n_generated} candidates"
    )


def _broken_off(choice: dict[str, Any]) -> tuple[str, ...]:
    """The reason why a candidate is none: it reached its limit or broke off, or a vendor's filter ended it, if it let
    it begin."""
    reason = {"length": "cut", "error": "cut", "content_filter": "filtered"}.get(choice.get("finish_reason", ""))
    return () if reason is None else (reason,)


def _candidate(
    run: CompileRun,
    compile: Compile,
    slice_row: Slice,
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
        slice=slice_row,
        text=text,
        text_key=key,
        origin="fresh",
        round=slice_row.round,
        state=state_when_written(reasons),
        reasons=list(reasons),
        logprob=choice["logprob"],
        token_logprobs=None if logprobs is None else np.asarray(logprobs, dtype=np.float16).tobytes(),
        tokens=choice.get("tokens") if caps_of(run.spec.teacher).prompt_logprobs else None,
        n_tokens=choice["n_tokens"],
        cost_microusd=call.cost_microusd // max(1, len(call.choices)),
    )


def embed_slice(run: CompileRun, slice_row: Slice, embedder: Embedder, step: StepName) -> None:
    """Give every valid candidate of the slice its vector (and the step its embedding cost)."""
    rows_without = Candidate.objects.filter(
        tenant_id=run.tenant_id, slice=slice_row, state=CandidateState.VALID, embedding=None
    )
    query = rows_without.order_by("text_key")  # who shares a batch moves the last bits: not left to the ids
    with run.transaction():
        rows = list(query)
    for first in range(0, len(rows), 512):
        part = rows[first : first + 512]
        vectors = embedder.embed([row.text for row in part])
        fact = embedding_fact(run, part, embedder)
        run.stop.check()
        with run.transaction() as fenced:
            for row, vector in zip(part, vectors, strict=True):
                row.embedding = vector.tobytes()
            Candidate.objects.bulk_update(part, ["embedding"])
            capture(fenced, step, [fact])


def hotter_ppm(slice_row: Slice) -> int:
    """The temperature of the next, hotter round."""
    return min(int(slice_row.temperature_ppm) + round(HOTTER * 1e6), round(MAX_TEMPERATURE * 1e6))


def shown_exemplars(run: CompileRun, slice_row: Slice) -> tuple[str, ...]:
    """The exemplars that the slice's open round shows."""
    return exemplars_of(run, slice_row, slice_row.round)


def exemplars_of(run: CompileRun, slice_row: Slice, round: int) -> tuple[str, ...]:
    """The slice's own exemplars. In the rounds after many rejects two texts that show what is wanted: its own, else
    training gold of its label (of a task without labels, any)."""
    if not any(entry["reaction"] == "exemplars" for entry in openers(slice_row, round)):
        return tuple(slice_row.exemplars)
    if len(slice_row.exemplars) >= 2:
        return tuple(slice_row.exemplars[:2])
    gold = get_jsonl(run.tenant_id, run.output(SlicingOut).gold_train)
    is_label = isinstance(run.spec.output, LabelOutput)
    fitting = [row["input"] for row in gold if not is_label or row["output"] == slice_row.label]
    return tuple([*slice_row.exemplars, *fitting][:2])


def heldout_keys(run: CompileRun) -> frozenset[str]:
    """The texts that no candidate may repeat."""
    rows = get_jsonl(run.tenant_id, run.output(SlicingOut).gold_heldout)
    return frozenset(text_key(row["input"]) for row in rows)
