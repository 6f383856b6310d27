"""Conversations with the teacher, held through the journal of calls."""

from collections.abc import Sequence
from typing import Any

from backend.domain.lifecycle import StepName
from workers.step.durable import CompileRun
from workers.step.teacher_calls import PlannedCall, ask_batch, request_sha256
from workers.step.teacher_session import TeacherSession
from workers.teachers.protocol import Choice
from workers.teachers.verifiers.protocol import Answer, Dialogue, Outcome, TeacherRequest


def run_dialogue(
    run: CompileRun, step: StepName, session: TeacherSession, key: str, conversation: Dialogue[Outcome]
) -> tuple[Outcome, set[str]]:
    """Run a conversation through the journal, as a part of `step`: (its outcome, which revisions answered). A
    question's digest is part of its key, so an answer is never taken for that of another question."""
    revisions: set[str] = set()
    answers: list[Answer] | None = None
    turn = 0
    while True:
        try:
            requests = next(conversation) if answers is None else conversation.send(answers)
        except StopIteration as ended:
            outcome: Outcome = ended.value
            return outcome, revisions
        answers = _answers(run, step, session, f"{key}:{turn}", requests)
        revisions |= {answer.revision for answer in answers if answer.revision}
        turn += 1


def _answers(
    run: CompileRun, step: StepName, session: TeacherSession, key: str, requests: Sequence[TeacherRequest]
) -> list[Answer]:
    plans = [
        PlannedCall(key=f"{key}:{i}:{request_sha256(request)[:12]}", request=request)
        for i, request in enumerate(requests)
    ]
    width = run.spec.teacher.concurrency
    made = [
        call
        for at in range(0, len(plans), width)
        for call in ask_batch(run, step, session.teacher, session.price, plans[at : at + width])
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
