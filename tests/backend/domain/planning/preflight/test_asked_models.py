"""Which models a preflight asks, and where its sentences say that their options stand."""

from typing import Any

import pytest

from backend.domain.dialects.faults import FAULT_TEXTS, TeacherFault
from backend.domain.planning.preflight.asked_models import AskedModel, asked_models
from backend.domain.planning.preflight.lines import Check, LineStatus
from backend.domain.planning.preflight.teacher_lines import answer_lines, failure_line, unasked_lines
from backend.domain.spec.parsing import parse_spec
from tests.backend.domain.planning.preflight.test_teacher_lines import TEACHER, answer
from tests.backend.domain.spec.test_parsing import document

ELSEWHERE = {
    "kind": "reward",
    "base_url": "https://rewards.example.com/v1",
    "model": "judge-1",
    "price": TEACHER["price"],
}
NUMBERS = ELSEWHERE | {"api": "vllm-classify", "model": "rm-1"}
LENGTH = {"kind": "length", "min_chars": 8}


def models_of(verifiers: Any = (), **teacher: Any) -> dict[Check, AskedModel]:
    spec = parse_spec(document(teacher=TEACHER | teacher, verifiers=list(verifiers)))
    return {asked.check: asked for asked in asked_models(spec)}


def test_a_spec_without_a_fallback_and_a_reward_has_its_teacher_asked_alone() -> None:
    assert list(models_of([LENGTH])) == [Check.TEACHER]


def test_all_three_are_asked_each_at_its_own_address_with_its_own_model() -> None:
    models = models_of([LENGTH, ELSEWHERE], fallback_model="m-2")
    asked = {check: (one.spec.teacher.base_url, one.spec.teacher.model) for check, one in models.items()}
    assert asked == {
        Check.TEACHER: (TEACHER["base_url"], "m-1"),
        Check.FALLBACK: (TEACHER["base_url"], "m-2"),
        Check.REWARD: ("https://rewards.example.com/v1", "judge-1"),
    }


def test_the_built_in_teachers_fallback_is_not_asked_and_its_reward_elsewhere_is() -> None:
    grammar = {"provider": "grammar", "model": "kolm-grammar-1", "fallback_model": "kolm-grammar-1"}
    models = asked_models(parse_spec(document(teacher=grammar, verifiers=[ELSEWHERE])))
    assert [one.check for one in models if one.is_asked] == [Check.REWARD]
    assert [one.check for one in models] == [Check.TEACHER, Check.REWARD], "the teacher has a line of its own"


@pytest.mark.parametrize("fault", list(TeacherFault))
def test_what_to_do_names_the_place_in_the_spec_that_the_model_has(fault: TeacherFault) -> None:
    models = models_of([LENGTH, ELSEWHERE], fallback_model="m-2")
    fallback = failure_line(models[Check.FALLBACK], code="teacher_rejected", fault=fault)
    assert (fallback.check, fallback.status, fallback.code) == (Check.FALLBACK, LineStatus.FAILED, fault.value)
    assert fallback.sentence.startswith("The fallback model m-2 at llm.example.com: ")
    assert "teacher.model" not in fallback.what_to_do
    reward = failure_line(models[Check.REWARD], code="teacher_rejected", fault=fault)
    assert reward.sentence.startswith("The reward model judge-1 at rewards.example.com: ")
    assert "teacher." not in reward.what_to_do
    if "teacher." in FAULT_TEXTS[fault].what_to_do:
        assert "verifiers[1]." in reward.what_to_do


def test_a_reward_at_the_teachers_address_has_its_key_from_there() -> None:
    asked = models_of([{"kind": "reward", "model": "judge-1", "price": TEACHER["price"]}])[Check.REWARD]
    assert "teacher.api_key" in failure_line(asked, code="x", fault=TeacherFault.WRONG_KEY).what_to_do
    assert "verifiers[0].model" in failure_line(asked, code="x", fault=TeacherFault.NO_SUCH_MODEL).what_to_do


@pytest.mark.parametrize(
    "code", ["teacher_unreachable", "teacher_timeout", "teacher_only_thought", "unknown_teacher_key"]
)
def test_a_failure_that_may_pass_names_its_own_options_too(code: str) -> None:
    line = failure_line(models_of([ELSEWHERE])[Check.REWARD], code=code, fault=None)
    assert (line.check, line.code) == (Check.REWARD, code)
    assert "verifiers[0]." in line.what_to_do
    assert "teacher." not in line.what_to_do


@pytest.mark.parametrize("fault", [None, *TeacherFault])
def test_no_advice_speaks_of_a_compile_since_a_doctor_starts_none(fault: TeacherFault | None) -> None:
    codes = ("teacher_unreachable", "teacher_timeout", "teacher_rate_limited") if fault is None else ("x",)
    for code in codes:
        line = failure_line(models_of()[Check.TEACHER], code=code, fault=fault)
        assert "start the compile" not in line.what_to_do


def test_a_reward_models_server_is_not_asked_to_speak_chat_completions() -> None:
    asked = models_of([NUMBERS])[Check.REWARD]
    for fault in (TeacherFault.NOT_OPENAI, TeacherFault.NO_SUCH_PATH, TeacherFault.OTHER_REFUSAL):
        line = failure_line(asked, code="teacher_protocol", fault=fault)
        assert "/chat/completions" not in line.sentence + line.what_to_do
        assert "vllm-classify is asked at /classify" in line.what_to_do
        assert line.code == fault.value


def test_a_reward_that_cannot_be_read_is_a_warning_as_the_compile_would_go_on_without_it() -> None:
    asked = models_of([ELSEWHERE])[Check.REWARD]
    unread, misled = (answer_lines(asked, answer(has_reward=False, rates_nonsense=misled)) for misled in (False, True))
    for (line,) in (unread, misled):
        assert (line.check, line.status, line.code) == (Check.REWARD, LineStatus.WARNING, "reward_unread")
        assert "verifiers[0].model" in line.what_to_do
    assert "random letters" in misled[0].sentence
    (passed,) = answer_lines(asked, answer())
    assert (passed.check, passed.status) == (Check.REWARD, LineStatus.PASSED)
    assert "judge-1 at rewards.example.com answered in 812 ms" in passed.sentence


def test_where_something_failed_before_each_of_them_says_that_it_was_not_asked() -> None:
    spec = parse_spec(document(teacher=TEACHER | {"fallback_model": "m-2"}, verifiers=[ELSEWHERE]))
    lines = unasked_lines(spec, "fix the failed lines first")
    assert [(line.check, line.status) for line in lines] == [
        (check, LineStatus.SKIPPED) for check in (Check.TEACHER, Check.FALLBACK, Check.REWARD)
    ]


def judge_asked(**changes: Any) -> dict[Check, AskedModel]:
    judge = {"model": "small", "price": TEACHER["price"]} | changes
    spec = parse_spec(document(teacher=TEACHER, draft_cache={"judge": judge}))
    return {asked.check: asked for asked in asked_models(spec)}


def test_the_judge_of_drafts_is_asked_and_named_where_its_options_stand() -> None:
    models = judge_asked(base_url="https://judge.example.com/v1")
    assert list(models) == [Check.TEACHER, Check.JUDGE]
    fault = next(fault for fault, text in FAULT_TEXTS.items() if "teacher.api_key" in text.what_to_do)
    line = failure_line(models[Check.JUDGE], code="teacher_rejected", fault=fault)
    assert (line.check, line.status) == (Check.JUDGE, LineStatus.FAILED)
    assert "The judge of drafts small at judge.example.com" in line.sentence
    assert "draft_cache.judge.api_key" in line.what_to_do
    at_the_teachers = failure_line(judge_asked()[Check.JUDGE], code="teacher_rejected", fault=fault)
    assert "teacher.api_key" in at_the_teachers.what_to_do


def test_a_judge_that_names_no_drafts_is_a_warning_as_the_teacher_would_be_asked() -> None:
    asked = judge_asked()[Check.JUDGE]
    (line,) = answer_lines(asked, answer(has_verdict=False))
    assert (line.check, line.status, line.code) == (Check.JUDGE, LineStatus.WARNING, "judge_unread")
    (line,) = answer_lines(asked, answer())
    assert (line.check, line.status) == (Check.JUDGE, LineStatus.PASSED)
