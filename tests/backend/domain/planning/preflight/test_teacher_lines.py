"""What the tiny call's answer, or its failure, becomes."""

from typing import Any

import pytest

from backend.domain.dialects.faults import FAULT_TEXTS, TeacherFault
from backend.domain.planning.preflight.asked_models import AskedModel, asked_models
from backend.domain.planning.preflight.lines import Check, LineStatus
from backend.domain.planning.preflight.teacher_lines import (
    TinyAnswer,
    answer_lines,
    failure_line,
    skipped_lines,
    slow_line,
)
from backend.domain.spec.parsing import Spec, parse_spec
from tests.backend.domain.planning.test_trials import json_spec
from tests.backend.domain.spec.test_parsing import document

TEACHER = {
    "provider": "openai_compatible",
    "base_url": "https://llm.example.com/secret-path/v1",
    "model": "m-1",
    "price": {"input_usd_per_mtok": 1, "output_usd_per_mtok": 2},
}


def spec_of(**changes: Any) -> Spec:
    return parse_spec(document(**({"teacher": TEACHER} | changes)))


def asked_by(spec: Spec) -> AskedModel:
    return asked_models(spec)[0]


def answer(**changes: Any) -> TinyAnswer:
    fields: dict[str, Any] = {
        "text": "refund",
        "is_cut": False,
        "has_logprobs": True,
        "wants_logprobs": True,
        "latency_ms": 812,
        "cost_microusd": 42,
        "dialect": "openai",
    }
    return TinyAnswer(**(fields | changes))


def test_an_answer_is_told_with_its_time_its_cost_and_what_was_learnt() -> None:
    teacher, logprobs = answer_lines(asked_by(spec_of()), answer(learnt=("seed", "n")))
    assert teacher.status is LineStatus.PASSED
    assert "m-1 at llm.example.com answered in 812 ms for $0.000042" in teacher.sentence
    assert "as openai, without seed, n." in teacher.sentence
    assert logprobs.check is Check.LOGPROBS


def test_log_probs_that_do_not_come_are_told_and_refuse_nothing() -> None:
    for wants in (True, False):
        line = answer_lines(asked_by(spec_of()), answer(has_logprobs=False, wants_logprobs=wants))[-1]
        assert (line.check, line.status) == (Check.LOGPROBS, LineStatus.SKIPPED)
    verified = spec_of(verifiers=[{"kind": "length", "min_chars": 8}])
    assert "verifiers" in answer_lines(asked_by(verified), answer(has_logprobs=False))[-1].sentence


@pytest.mark.parametrize(
    ("text", "is_cut", "status", "code"),
    [
        ("no json at all", False, LineStatus.WARNING, "answer_not_json"),
        ("```json\n[1, 2, 3]\n```", False, LineStatus.WARNING, "answer_not_in_schema"),
        ('{"unfinished": "', True, LineStatus.SKIPPED, ""),
        ("{" + "\n  " * 80, True, LineStatus.WARNING, "answer_white_space"),
        ("{\n" + " " * 40, True, LineStatus.SKIPPED, ""),
    ],
)
def test_the_answer_to_a_json_task_is_held_against_its_schema(text, is_cut, status, code) -> None:
    spec = json_spec().model_copy(update={"teacher": spec_of().teacher})
    lines = {line.check: line for line in answer_lines(asked_by(spec), answer(text=text, is_cut=is_cut))}
    assert (lines[Check.STRUCTURED_OUTPUT].status, lines[Check.STRUCTURED_OUTPUT].code) == (status, code)


def test_a_filter_that_refuses_a_harmless_test_refuses_the_task() -> None:
    (line,) = answer_lines(asked_by(spec_of()), answer(text="", is_filtered=True))
    assert (line.check, line.status, line.code) == (Check.TEACHER, LineStatus.FAILED, "content_refused")


@pytest.mark.parametrize("text", ["", " \n"])
@pytest.mark.parametrize(("effort", "word"), [(None, "set teacher.effort to none"), ("none", "none: leave it out")])
def test_an_answer_without_a_word_fails_and_names_the_switches_of_thoughts(text, effort, word) -> None:
    spec = spec_of(teacher=TEACHER | {"effort": effort, "fallback_model": "m-2"})
    for asked, check in zip(asked_models(spec), (Check.TEACHER, Check.FALLBACK), strict=True):
        (line,) = answer_lines(asked, answer(text=text))
        assert (line.check, line.status, line.code) == (check, LineStatus.FAILED, "empty_answer")
        assert word in line.what_to_do
        assert "--reasoning-parser" in line.what_to_do


def test_an_answer_that_is_no_label_is_a_warning_with_its_first_words() -> None:
    said = "I'm sorry,\nI can't help.\u202e" + "x" * 200
    teacher, unread, _ = answer_lines(asked_by(spec_of()), answer(text=said, has_label=False))
    assert teacher.status is LineStatus.PASSED
    assert (unread.check, unread.status, unread.code) == (Check.TEACHER, LineStatus.WARNING, "label_unread")
    assert "\"I'm sorry, I can't help.?xxx" in unread.sentence
    assert len(unread.sentence) < 200


@pytest.mark.parametrize("fault", list(TeacherFault))
def test_every_fault_has_a_sentence_and_what_mends_it_and_no_path(fault: TeacherFault) -> None:
    line = failure_line(asked_by(spec_of()), code="teacher_rejected", fault=fault)
    assert (line.status, line.code) == (LineStatus.FAILED, fault.value)
    assert line.sentence.startswith("The teacher m-1 at llm.example.com: ")
    assert line.what_to_do == FAULT_TEXTS[fault].what_to_do
    assert "secret-path" not in line.sentence


@pytest.mark.parametrize("code", ["teacher_unreachable", "teacher_timeout", "teacher_rate_limited", "teacher_protocol"])
def test_a_failure_without_a_fault_keeps_its_code(code: str) -> None:
    line = failure_line(asked_by(spec_of()), code=code, fault=None, message="The teacher m-1 failed: so it did.")
    assert (line.status, line.code, bool(line.what_to_do)) == (LineStatus.FAILED, code, True)


def test_an_answer_that_nobody_waited_for_refuses_nothing() -> None:
    line = slow_line(asked_by(spec_of()))
    assert (line.check, line.status, line.code) == (Check.TEACHER, LineStatus.WARNING, "teacher_slow")
    assert line.sentence.startswith("The teacher m-1 at llm.example.com did not answer the test within 20 s")


def test_the_built_in_teacher_is_not_asked() -> None:
    (line,) = skipped_lines(parse_spec(document()))
    assert (line.check, line.status) == (Check.TEACHER, LineStatus.SKIPPED)


@pytest.mark.parametrize(
    ("base_url", "word"),
    [
        ("https://llm.example.com", "Here that may be https://llm.example.com/v1."),
        ("https://llm.example.com:8443/", "Here that may be https://llm.example.com:8443/v1."),
        ("https://llm.example.com/v1", ""),
        ("https://llm.example.com/team-secret/api", ""),
    ],
)
def test_a_host_alone_is_answered_with_the_address_up_to_v1(base_url: str, word: str) -> None:
    spec = parse_spec(document(teacher=TEACHER | {"base_url": base_url}))
    line = failure_line(asked_by(spec), code="teacher_rejected", fault=TeacherFault.NO_SUCH_PATH)
    assert line.what_to_do.endswith(word or "mostly up to /v1.")
    assert "team-secret" not in line.sentence + line.what_to_do
    assert "Here that" not in failure_line(asked_by(spec), code="x", fault=TeacherFault.WRONG_KEY).what_to_do
