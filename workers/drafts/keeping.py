"""The drafts that a compile leaves to the cache: in the transaction of a selection's picks the N-K rejects, and what
was written after it; all of them where an exact rule may use them (a teacher that tells log-probs, or whose revision is
known), because such a rule needs a sample of what the teacher writes, and rejects alone are none."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from backend.compiles.models import Candidate, Slice, TeacherCall
from backend.compiles.reactions import first_round, openers, temperature_of
from backend.compiles.states import CANDIDATE_CALLS, CallState, CandidateState
from backend.domain.answers.candidates import Origin
from backend.domain.drafts.vocabulary import Arm
from backend.drafts.cache import Admitted, SourcePrompt, admit
from backend.drafts.models import Outcome
from backend.drafts.vault import from_float16
from workers.candidates.generation import exemplars_of, first_temperature
from workers.candidates.slices import slice_names
from workers.drafts.repeats import source_prompt
from workers.drafts.scopes import draft_scope
from workers.step.durable import CompileRun
from workers.step.embedders import embedder_of
from workers.step.teacher_profile import caps_of, identity_of


def keep_drafts(run: CompileRun, slice_row: Slice, rows: Sequence[Candidate], *, n_generated: int) -> None:
    """`rows` are the slice's candidates after its selection, or those of a round that a plan has bought, of
    `n_generated` that the teacher wrote. Each round is a source of its own, under the teacher and the temperature that
    wrote it; a draft that was reused is not kept a second time."""
    keeps_all = caps_of(run.spec.teacher).prompt_logprobs or bool(identity_of(run.spec.teacher).revision)
    mine = [row for row in rows if row.origin == Origin.FRESH and (keeps_all or row.state == CandidateState.DROPPED)]
    missing_ppm = round(1_000_000 * (1 - min(1.0, len(mine) / max(1, n_generated))))
    for number in sorted({row.round for row in mine}):
        _admit_round(run, slice_row, number, [row for row in mine if row.round == number], missing_ppm)


def _admit_round(run: CompileRun, slice_row: Slice, number: int, rows: Sequence[Candidate], missing_ppm: int) -> None:
    is_fallback = any(entry["reaction"] == "fallback_model" for entry in openers(slice_row, number))
    model = run.spec.teacher.fallback_model if is_fallback else None
    teacher = run.spec.teacher if model is None else run.spec.teacher.model_copy(update={"model": model})
    temperature = temperature_of(slice_row, number, first_ppm=first_temperature(run)) / 1_000_000
    admit(
        run.tenant_id,
        run.compile_id,
        [_as_admitted(row) for row in rows],
        scope=draft_scope(
            identity_of(teacher),
            family=run.spec.family,
            embedder=embedder_of(run).identity,
            temperature=temperature,
            revision=_revision(run, slice_row, number),
        ),
        prompt=_prompt(run, slice_row, number, temperature),
        slice_vector=np.frombuffer(bytes(slice_row.embedding or b""), dtype=np.float32).tolist(),
        names=slice_names(run.spec, slice_row),
        missing_ppm=missing_ppm,
        price_version=run.prices.of(teacher.model).version,
    )


def _prompt(run: CompileRun, slice_row: Slice, number: int, temperature: float) -> SourcePrompt:
    """The prompt that the teacher was sent in that round. A half of a slice that was split has the rounds of the whole:
    what was asked then was another question, which nobody asks again."""
    exemplars = exemplars_of(run, slice_row, number)
    prompt = source_prompt(run.spec, slice_row, temperature=temperature, exemplars=exemplars)
    return replace(prompt, messages=()) if number < first_round(slice_row) else prompt


def _revision(run: CompileRun, slice_row: Slice, number: int) -> str:
    """The revision that the teacher said it was while it wrote the round; "" where it said nothing, or several
    things."""
    calls = TeacherCall.objects.filter(
        tenant_id=run.tenant_id,
        compile_id=run.compile_id,
        key__startswith=f"{CANDIDATE_CALLS}{slice_row.position}:{number}:",
        state=CallState.APPLIED,
    )
    revisions = set(calls.values_list("revision", flat=True)) - {""}
    return revisions.pop() if len(revisions) == 1 else ""


def _as_admitted(row: Candidate) -> Admitted:
    logprobs = None if row.token_logprobs is None else from_float16(bytes(row.token_logprobs))
    has_tokens = row.tokens is not None and logprobs is not None and len(row.tokens) == len(logprobs)
    return Admitted(
        candidate_id=row.id,
        text=row.text,
        score=row.score,
        signal=row.signal,
        logprob=row.logprob,
        n_tokens=row.n_tokens,
        cost_microusd=row.cost_microusd,
        is_kept=row.state == CandidateState.PICKED,
        tokens=tuple(row.tokens) if has_tokens else None,
        token_logprobs=logprobs,
    )


def note_outcome(run: CompileRun, slice_row: Slice, rows: Sequence[Candidate]) -> None:
    """Note what became of the slice, for the comparison of held-back slices with the others."""
    plan = slice_row.offer_plan
    picked = [row for row in rows if row.state == CandidateState.PICKED]
    scores = [row.score for row in picked if row.score is not None]
    pairwise = (slice_row.selection or {}).get("mean_pairwise_ppm")
    Outcome.objects.bulk_create(
        [
            Outcome(
                tenant_id=run.tenant_id,
                compile_id=run.compile_id,
                slice_position=slice_row.position,
                family=run.spec.family,
                arm=Arm.OFF if plan is None else plan.arm,
                n_candidates=len(rows),
                n_from_drafts=sum(bool(row.certificate) for row in rows),
                n_picked=len(picked),
                n_picked_from_drafts=sum(row.origin == Origin.DRAFT for row in picked),
                mean_score=sum(scores) / len(scores) if scores else None,
                mean_pairwise=None if pairwise is None else pairwise / 1_000_000,
                cost_microusd=sum(row.cost_microusd for row in rows),
            )
        ],
        ignore_conflicts=True,
    )
