"""The one tiny call: asked as labelling asks, once, about a text that says it is a test, with an answer of a few words.

It has all that a later call has (key, model, dialect, structured output, log-probs, effort), so that what an endpoint
refuses is refused now; the refusals that teach something are kept as after every call.
"""

from dataclasses import replace

from backend.domain.errors import KolmError
from backend.domain.planning.preflight.lines import PreflightLine
from backend.domain.planning.preflight.teacher_lines import (
    TEST_TEXT,
    TEST_TOKENS,
    TinyAnswer,
    answer_lines,
    failure_line,
)
from backend.domain.spec.defaults import dialect_of
from backend.domain.spec.parsing import Spec
from workers.teachers.openai_compatible.teacher import OpenAICompatibleTeacher
from workers.teachers.prompts.answer import item_request
from workers.teachers.protocol import CompletionRequest, Teacher, TeacherFailed


def is_asked(spec: Spec) -> bool:
    """Tell whether there is a far side to ask: the built-in teacher and a recording need no call."""
    return spec.teacher.provider == "openai_compatible"


def tiny_request(spec: Spec) -> CompletionRequest:
    request = item_request(spec, TEST_TEXT, n=1, temperature=spec.sampling.temperature_labels, seed=None)
    return replace(request, max_tokens=min(request.max_tokens, TEST_TOKENS))


def lines_of_answer(
    spec: Spec, teacher: Teacher, *, text: str, finish_reason: str, has_logprobs: bool, latency_ms: int, cost: int
) -> list[PreflightLine]:
    """The lines of a call that was answered; `cost` in micro-USD."""
    learnt = teacher.lessons if isinstance(teacher, OpenAICompatibleTeacher) else ()
    answer = TinyAnswer(
        text=text,
        is_cut=finish_reason == "length",
        has_logprobs=has_logprobs,
        wants_logprobs=teacher.caps.logprobs,
        latency_ms=latency_ms,
        cost_microusd=cost,
        dialect=dialect_of(spec.teacher).name,
        learnt=tuple(dict.fromkeys(lesson.option.value for lesson in learnt if lesson.value is None)),
    )
    return answer_lines(spec, answer)


def line_of_failure(spec: Spec, error: KolmError) -> PreflightLine:
    fault = error.fault if isinstance(error, TeacherFailed) else None
    return failure_line(spec, code=error.code, fault=fault, message=error.message)
