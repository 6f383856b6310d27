"""The question to a spec's own teacher: what its requests take from the spec."""

import dataclasses
import random

import pytest

from backend.domain.spec.parsing import Spec, Teacher
from tests.workers.teachers.judges.numbered_judges import drafts_of
from workers.step.teacher_calls import with_room
from workers.teachers.judges.compile_judge import judge_compile
from workers.teachers.judges.judged_slices import JudgedSlice, JudgeQuestion, judge_question
from workers.teachers.judges.slice_audit import audit_slice
from workers.teachers.prompts.candidate_and_label import head, label_request, slice_lines
from workers.teachers.protocol import CompletionRequest


def question_for(spec: Spec, **teacher: object) -> JudgeQuestion:
    options = {"provider": "openai_compatible", "base_url": "https://llm.example/v1", "model": "m"} | teacher
    asked = spec.model_copy(update={"teacher": Teacher(**options)})
    slices = tuple(
        JudgedSlice(key=key, lines=tuple(slice_lines(one)), drafts=drafts_of(["a", "b"]) if key == 1 else ())
        for key, one in enumerate(spec.slices)
    )
    return judge_question(asked, slices, seed=5, cache_salt="salt")


def requests_of(question: JudgeQuestion) -> list[CompletionRequest]:
    one = question.slices[1]
    return [
        *next(judge_compile(question, random.Random(1))),
        *next(audit_slice(question, one, one.drafts[0], random.Random(1))),
    ]


def test_requests_carry_what_the_spec_says_of_its_teacher(spec: Spec) -> None:
    question = question_for(spec, effort="low", thought_tokens=3000)
    assert question.head == tuple(head(spec))
    for request in requests_of(question):
        assert (request.seed, request.cache_salt, request.effort) == (5, "salt", "low")
        assert len(request.cache_key) == 32
        assert not request.as_tool


def test_a_judge_may_think_as_long_as_it_may_about_a_label(spec: Spec) -> None:
    """And its answer has all of its own room beside the thoughts."""
    question = question_for(spec, effort="high", thought_tokens=3000)
    asked = spec.model_copy(
        update={
            "teacher": Teacher(
                provider="openai_compatible",
                base_url="https://llm.example/v1",
                model="m",
                effort="high",
                thought_tokens=3000,
            )
        }
    )
    label = label_request(asked, "x", n=1, temperature=0.0, seed=1)
    for request in requests_of(question):
        assert request.thought_tokens == label.thought_tokens == 3000
        learnt = with_room(request, 9000)
        assert isinstance(learnt, CompletionRequest)
        assert (learnt.thought_tokens, learnt.max_tokens) == (9000, request.max_tokens)
        assert request.most_output_tokens == request.max_tokens + 3000


@pytest.mark.parametrize(
    ("teacher", "has_schema"),
    [
        ({}, True),
        ({"base_url": "https://api.openai.com/v1", "model": "gpt-5-mini"}, True),
        ({"base_url": "https://api.anthropic.com/v1", "model": "claude-haiku-4-5"}, False),
        ({"provider": "grammar", "base_url": None, "model": "kolm-grammar-1"}, False),
    ],
)
def test_json_is_asked_for_where_an_endpoint_can_be_held_to_it_without_a_tool(
    spec: Spec, teacher: dict[str, object], has_schema: bool
) -> None:
    question = question_for(spec, **teacher)
    assert question.has_schema is has_schema
    for request in requests_of(question):
        assert bool(request.answer_schema) is has_schema
        assert ("JSON" in request.messages[1].content.split("\n")[-1]) is has_schema


def test_all_slices_are_described_those_without_drafts_too(spec: Spec) -> None:
    (request, _) = requests_of(question_for(spec))
    for one in spec.slices:
        assert f". Slice: {one.name}\nHint: {one.hint}\nLabel: {one.label}\n" in request.messages[1].content
    assert dataclasses.asdict(request)["n"] == 1
