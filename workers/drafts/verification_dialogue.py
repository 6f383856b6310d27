"""The conversation with the teacher about a slice's drafts, held through the journal of calls."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from backend.compiles.models import Slice
from backend.domain.drafts.policy import decide
from backend.domain.drafts.vocabulary import StoredDraft, Strategy, Verification
from backend.domain.lifecycle import StepName
from backend.domain.planning.estimates import CHOICES_PER_CALL
from backend.drafts.cache import load_drafts
from backend.drafts.calibrations import calibration, curve_of, ledger_of
from workers.candidates.generation import shown_exemplars
from workers.drafts.gate_verification import gate_of
from workers.drafts.proposals import asked_of, fresh_cost, offerables, source_order, verifiers_of, with_old_prompts
from workers.drafts.records import counts_of
from workers.durable import CompileRun
from workers.step.teacher_session import TeacherSession, seed_of
from workers.teacher_calls import PlannedCall, ask_batch, request_sha256
from workers.teachers.factory import caps_of
from workers.teachers.protocol import Choice
from workers.teachers.verifiers.protocol import Answer, Asked, Conversation, DraftVerifier, TeacherRequest


def ask_about(
    run: CompileRun, pool: Slice, session: TeacherSession, plan: dict[str, Any]
) -> tuple[Verification, list[StoredDraft]]:
    """Ask about the planned drafts; after an adaptive probe, about the rest only where it still pays."""
    asked, drafts = _asked(run, pool, plan)
    verifier = _verifier(run, pool, asked, plan)
    n_first = sum(row[0] in {str(d.draft_id) for d in drafts} for row in plan["shown"][: plan["first"]])
    if not n_first:
        return _ask(run, pool, session, verifier, asked, drafts, plan, stage=0), drafts
    probe, rest = drafts[:n_first], drafts[n_first:]
    told = _ask(run, pool, session, verifier, asked, probe, plan, stage=0)
    more = _still_worth(run, pool, session, verifier, asked, probe, rest, told, plan)
    if not more:
        return told, probe
    later = _ask(run, pool, session, verifier, asked, more, plan, stage=1)
    return _joined(told, later), [*probe, *more]


def _verifier(run: CompileRun, pool: Slice, asked: Asked, plan: dict[str, Any]) -> DraftVerifier:
    if plan["strategy"] == Strategy.GATE:
        return gate_of(run, pool, plan["gate_threshold"])
    able = verifiers_of(run.spec, caps_of(run.spec.teacher), asked.policy)
    return next(verifier for verifier in able if verifier.strategy == plan["strategy"])


def _asked(run: CompileRun, pool: Slice, plan: dict[str, Any]) -> tuple[Asked, list[StoredDraft]]:
    """The slice and its drafts as planned; a draft that was deleted since is not asked about."""
    distances = {UUID(row[0]): float(row[1]) for row in [*plan["shown"], *plan["far"]]}
    asked = asked_of(run.spec, pool, n=CHOICES_PER_CALL, exemplars=shown_exemplars(run, pool))
    with run.fenced():
        stored = load_drafts(run.tenant_id, run.spec.family, distances)
        sources = [draft.source_id for draft in stored.values()]
        asked = with_old_prompts(run.tenant_id, run.spec, asked, sources)
    far = tuple(stored[UUID(row[0])] for row in plan["far"] if UUID(row[0]) in stored)
    drafts = [stored[UUID(row[0])] for row in plan["shown"] if UUID(row[0]) in stored]
    return replace(asked, far=far), drafts


def _ask(
    run: CompileRun,
    pool: Slice,
    session: TeacherSession,
    verifier: DraftVerifier,
    asked: Asked,
    drafts: Sequence[StoredDraft],
    plan: dict[str, Any],
    *,
    stage: int,
) -> Verification:
    rng = random.Random(seed_of(run, "verification", run.compile_id, pool.position, stage))
    if not drafts:
        return unasked()
    key = f"drafts:{pool.position}:{stage}"
    told, revisions = hold(run, session, key, verifier.verify(asked, drafts, rng))
    if plan["revision"] and not run.spec.teacher.revision and revisions - {plan["revision"]}:
        with run.fenced():
            run.warn(
                "teacher_revision_changed",
                "The teacher is another revision than the one that wrote the drafts: their verdicts count for nothing.",
                slice=pool.name,
            )
        return Verification(verdicts=(), cost=told.cost, audit_cost=told.audit_cost, is_void=True)
    return told


def _still_worth(
    run: CompileRun,
    pool: Slice,
    session: TeacherSession,
    verifier: DraftVerifier,
    asked: Asked,
    probe: Sequence[StoredDraft],
    rest: Sequence[StoredDraft],
    told: Verification,
    plan: dict[str, Any],
) -> list[StoredDraft]:
    """What the probe's verdicts leave worth showing of the rest."""
    if not rest or told.is_void:
        return []
    with run.fenced():
        row = calibration(run.tenant_id, UUID(plan["scope"]), verifier.strategy)
    quote = verifier.quote(asked, rest, session.price)
    order = source_order([*probe, *rest])
    seen = {order[id]: count for id, count in counts_of(told, probe).items()}
    decision = decide(
        curve_of(row),
        offerables(rest, quote, order),
        n_wanted=pool.n_candidates - sum(bool(verdict.text) for verdict in told.verdicts),
        fresh_microusd=fresh_cost(asked, session.price, output_tokens=sum(d.n_tokens for d in rest) / len(rest)),
        overhead_microusd=quote.overhead_microusd,
        ledger=ledger_of(row),
        rng=random.Random(f"{run.compile_id}/{pool.position}/rest"),
        seen=seen,
    )
    return [rest[i] for i in decision.shown]


def _joined(first: Verification, later: Verification) -> Verification:
    return Verification(
        verdicts=first.verdicts + later.verdicts,
        controls=first.controls + later.controls,
        cost=first.cost + later.cost,
        audit_cost=first.audit_cost + later.audit_cost,
        is_void=first.is_void and later.is_void,
    )


def unasked() -> Verification:
    return Verification(verdicts=(), is_void=True)


def hold(
    run: CompileRun, session: TeacherSession, key: str, conversation: Conversation
) -> tuple[Verification, set[str]]:
    """Hold a conversation through the journal: (what was said, which revisions answered). A question's digest is part
    of its key, so an answer is never taken for that of another question."""
    revisions: set[str] = set()
    answers: list[Answer] | None = None
    turn = 0
    while True:
        try:
            requests = next(conversation) if answers is None else conversation.send(answers)
        except StopIteration as ended:
            said: Verification = ended.value
            return said, revisions
        answers = _answers(run, session, f"{key}:{turn}", requests)
        revisions |= {answer.revision for answer in answers if answer.revision}
        turn += 1


def _answers(run: CompileRun, session: TeacherSession, key: str, requests: Sequence[TeacherRequest]) -> list[Answer]:
    plans = [
        PlannedCall(key=f"{key}:{i}:{request_sha256(request)[:12]}", request=request)
        for i, request in enumerate(requests)
    ]
    width = run.spec.teacher.concurrency
    made = [
        call
        for at in range(0, len(plans), width)
        for call in ask_batch(run, StepName.SYNTHESIS, session.teacher, session.price, plans[at : at + width])
    ]
    return [
        Answer(choices=tuple(_choice(value) for value in call.choices), cost=call.cost, revision=call.revision)
        for call in made
    ]


def _choice(value: dict[str, Any]) -> Choice:
    """A choice as it was journaled: JSON has lists where we have tuples."""
    rows = value.get("top_logprobs")
    fields = value | {
        "token_logprobs": None if value.get("token_logprobs") is None else tuple(value["token_logprobs"]),
        "tokens": None if value.get("tokens") is None else tuple(value["tokens"]),
        "top_logprobs": None if rows is None else tuple(tuple((t, p) for t, p in row) for row in rows),
    }
    return Choice(**fields)
