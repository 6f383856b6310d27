"""The tiny calls, one for each model that a compile asks: each is asked as the compile will, once, about a text that
says it is a test, or for one candidate, with an answer of a few words.

A call has all that a later one has (key, model, dialect, structured output, log-probs, effort), so that what an
endpoint refuses is refused now; the refusals that teach something are kept as after every call.
"""

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

from backend.domain.drafts.vocabulary import StoredDraft
from backend.domain.errors import KolmError
from backend.domain.money.teacher_prices import TeacherPrices
from backend.domain.planning.preflight.asked_models import AskedModel
from backend.domain.planning.preflight.lines import Check, PreflightLine
from backend.domain.planning.preflight.teacher_lines import (
    TEST_TEXT,
    TEST_TOKENS,
    TinyAnswer,
    answer_lines,
    failure_line,
)
from backend.domain.spec.defaults import dialect_of, effective_slices
from backend.domain.spec.parsing import LabelOutput, Spec, label_names
from workers.step.teacher_session import TeacherSession, open_judge, open_rewarder, open_teacher
from workers.teachers.judges.batches import NO_DRAFT
from workers.teachers.judges.compile_requests import Plants, first_requests
from workers.teachers.judges.judged_slices import JudgedSlice, judge_question
from workers.teachers.judges.ratings import RatingBatch, rating_batch
from workers.teachers.openai_compatible.teacher import OpenAICompatibleTeacher
from workers.teachers.prompts.answer import item_request
from workers.teachers.prompts.candidate_and_label import candidate_request, parse_label, slice_lines
from workers.teachers.prompts.judge import ACCEPTED
from workers.teachers.prompts.number_ranges import read_numbers
from workers.teachers.prompts.reward import reward_question, scored_request
from workers.teachers.protocol import CompletionRequest, Teacher, TeacherFailed


@contextmanager
def open_asked(tenant_id: UUID, spec: Spec, asked: AskedModel, prices: TeacherPrices) -> Iterator[TeacherSession]:
    """The client of one of a spec's models for the length of a block, with the key and at the price that are its
    own."""
    if asked.check is Check.REWARD:
        with open_rewarder(tenant_id, spec, prices) as session:
            yield session
        return
    if asked.check is Check.JUDGE:
        with open_judge(tenant_id, spec, prices) as session:
            yield session
        return
    model = asked.spec.teacher.model if asked.check is Check.FALLBACK else None
    with open_teacher(tenant_id, spec, prices, model=model) as session:
        yield session


def tiny_request(asked: AskedModel) -> CompletionRequest:
    """Ask the teacher for an answer, its fallback model for a candidate, the others for a reward and a verdict."""
    spec = asked.spec
    if asked.check is Check.JUDGE:
        return _judge_request(asked)
    if asked.check is Check.TEACHER:
        request = item_request(spec, TEST_TEXT, n=1, temperature=spec.sampling.temperature_labels, seed=None)
    elif asked.check is Check.FALLBACK:
        slice_, heat = effective_slices(spec)[0], spec.sampling.temperature_inputs
        request = candidate_request(spec, slice_, n=1, temperature=heat, seed=None)
    else:
        return _reward_request(asked)
    return replace(request, max_tokens=min(request.max_tokens, TEST_TOKENS))


def _reward_request(asked: AskedModel) -> CompletionRequest:
    spec, slice_ = asked.spec, effective_slices(asked.spec)[0]
    if asked.reward is not None and asked.reward.is_chat:
        return _test_batch().request(spec, slice_, seed=None, thought_of=spec)
    return scored_request(reward_question(spec, slice_), TEST_TEXT)


def _judge_request(asked: AskedModel) -> CompletionRequest:
    """The question about one draft, of which nothing is planted: whether it can be answered, not how."""
    lines = tuple(slice_lines(effective_slices(asked.spec)[0]))
    draft = StoredDraft(draft_id=NO_DRAFT, source_id=NO_DRAFT, text=TEST_TEXT, n_tokens=8, distance=0.0)
    question = judge_question(asked.spec, (JudgedSlice(key=0, lines=lines, drafts=(draft,)),), seed=None)
    rng = random.Random(TEST_TEXT)
    (request,) = first_requests(question, Plants(question.slices, rng), rng)
    return request.as_asked(question)


def _test_batch() -> RatingBatch:
    """The test beside a line of random letters: the same whenever an answer to it is read."""
    return rating_batch([TEST_TEXT], random.Random(TEST_TEXT))


def lines_of_answer(
    asked: AskedModel, teacher: Teacher, choice: Mapping[str, Any], *, latency_ms: int, cost: int
) -> list[PreflightLine]:
    """The lines of a call that was answered with one choice, as it is journaled; `cost` in micro-USD."""
    learnt = teacher.lessons if isinstance(teacher, OpenAICompatibleTeacher) else ()
    reward = asked.reward
    shown = _test_batch() if reward is not None and reward.is_chat else None
    answer = TinyAnswer(
        text=choice["text"],
        is_cut=choice["finish_reason"] == "length",
        is_filtered=choice["finish_reason"] == "content_filter" and not choice["text"].strip(),
        has_logprobs=choice["logprob"] is not None,
        wants_logprobs=teacher.caps.logprobs,
        latency_ms=latency_ms,
        cost_microusd=cost,
        dialect=dialect_of(asked.spec.teacher).name if reward is None or reward.is_chat else reward.api,
        learnt=tuple(dict.fromkeys(lesson.option.value for lesson in learnt if lesson.value is None)),
        has_label=asked.check is not Check.TEACHER or _has_label(asked.spec, choice["text"]),
        has_reward=bool(choice["text"] if shown is None else shown.read(choice)),
        rates_nonsense=shown is not None and shown.is_misled(choice),
        has_verdict=asked.check is not Check.JUDGE or read_numbers(choice["text"], 2, name=ACCEPTED) is not None,
    )
    return answer_lines(asked, answer)


def _has_label(spec: Spec, text: str) -> bool:
    return not isinstance(spec.output, LabelOutput) or parse_label(text, label_names(spec)) is not None


def line_of_failure(asked: AskedModel, error: KolmError) -> PreflightLine:
    fault = error.fault if isinstance(error, TeacherFailed) else None
    return failure_line(asked, code=error.code, fault=fault, message=error.message)
