"""The way from a chat to its answer, whatever serves it: the artifact's rules, a causal model or a student on an
encoder."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass

from gpu_runners.models.protocol import Delta
from gpu_runners.serving.openai.answer_forms import AnswerForm, asked_form
from gpu_runners.serving.openai.bodies.chats import ChatCall
from gpu_runners.serving.openai.body_threads import SHORT, cost_of_schema, in_turn
from gpu_runners.serving.openai.calls import chat_requests, merge_deltas
from gpu_runners.serving.openai.responder import Responder, Served, ServedStudent
from gpu_runners.serving.openai.rule_answers import rule_answer, rule_deltas
from gpu_runners.serving.openai.shapes import Answer
from gpu_runners.serving.openai.student_answers import StudentInput, student_delta, student_input
from gpu_runners.serving.openai.tools import is_hermes

Deltas = AsyncGenerator[tuple[int, Delta], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerUnderWay:
    """An answer still without its text, and the deltas that bring it."""

    answer: Answer
    deltas: Deltas


async def begin_chat(
    call: ChatCall, responder: Responder, headers: Mapping[str, str], *, n_bytes: int
) -> AnswerUnderWay:
    """Raises Refusal, BadRequest, Rejected, JobFailed for what cannot be answered."""
    served = await responder.resolve(call.model, headers)
    has_schema = call.sampling.schema is not None or bool(call.forced)
    cost = cost_of_schema(n_bytes) if has_schema else n_bytes
    if isinstance(served, ServedStudent):
        student = served.student
        asked = await in_turn(cost, lambda: student_input(call, student))
        answer = _answer_of(call, model=served.model, form=asked.form)
        return AnswerUnderWay(answer=answer, deltas=_student_deltas(served, asked, answer))
    own = served.prompt.get("answer", {})
    form = await in_turn(cost, lambda: asked_form(call, own))
    ruled = await in_turn(n_bytes, lambda: rule_answer(call, served, form))
    if ruled is not None:
        answer = _answer_of(call, model=served.model, form=form)
        answer.kolm = ruled.about
        return AnswerUnderWay(answer=answer, deltas=rule_deltas(ruled, served, n=call.sampling.n))
    # never on the loop: a chat is rendered by another process, and waited for
    requests = await in_turn(max(n_bytes, SHORT + 1), lambda: chat_requests(call, served, form))
    answer = _answer_of(call, model=served.model, form=form, served=served)
    return AnswerUnderWay(answer=answer, deltas=merge_deltas(served.engine, requests))


def _answer_of(call: ChatCall, *, model: str, form: AnswerForm, served: Served | None = None) -> Answer:
    reads_tools = served is not None and bool(call.tools) and is_hermes(str(served.base.tokenizer.chat_template))
    return Answer(
        model=model,
        is_chat=True,
        n_choices=call.sampling.n,
        has_logprobs=call.sampling.top_logprobs is not None,
        reads_tools=reads_tools,
        form=form,
        with_usage=call.sampling.include_usage,
    )


async def _student_deltas(served: ServedStudent, asked: StudentInput, answer: Answer) -> Deltas:
    """A student's whole answer is there at once: a stream of it has one chunk."""
    answered = await served.answer(asked.text)
    answer.kolm = asked.about(answered)
    yield 0, student_delta(answered, asked)
