"""Refusals that name nothing: what is guessed is kept only where the endpoint bears it out."""

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from backend.domain.dialects.dialect import Lesson, Option, lessons_from_json
from backend.domain.dialects.faults import TeacherFault
from tests.workers.teachers.openai_compatible.test_endpoint_faults import teacher_at
from tests.workers.teachers.openai_compatible.test_teacher import REQUEST
from tests.workers.teachers.strict_vendors import BY_NAME, Body, Endpoint, Refusal, serving
from workers.teachers.openai_compatible import retry
from workers.teachers.openai_compatible.batch_lines import BatchLine, BatchRequest, answer_of, lesson_of
from workers.teachers.protocol import TeacherFailed

ASKED = replace(REQUEST, logprobs=True, temperature=0.5, answer_schema='{"type":"object"}')
VAGUE = 400, {"message": "Input validation error"}
# OpenRouter's without its metadata; github.com/cloudflare/ai/issues/436;
# github.com/skye-harris/hass_local_openai_llm/issues/89; github.com/elizaOS/eliza/issues/20331; from memory
PASSING = [
    {"error": {"message": "Provider returned error", "code": 400}},
    {"success": False, "error": [{"code": 2005, "message": "Failed to get response from provider"}]},
    {
        "error": {
            "message": "Error from provider (Console Go): Upstream request failed",
            "code": "invalid_request_error",
        }
    },
    {"error": {"message": "No models provided", "code": 400}},
    {"error": {"message": "upstream connect error or disconnect/reset before headers"}},
]


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_DELAY_S", 0.001)
    monkeypatch.setattr(retry, "MAX_DELAY_S", 0.001)


def asked_at(refuse: Callable[[Body], Refusal | None], *requests: Any) -> tuple[tuple[Lesson, ...], Endpoint]:
    """What is learnt by requests one after another at an endpoint, and the endpoint."""
    vendor = replace(BY_NAME["openai"], refuse=refuse)
    with serving(vendor, lambda _, n: ["{}"] * n) as endpoint:
        teacher = teacher_at(endpoint.base_url)
        try:
            for request in requests:
                teacher.complete(request, deadline_s=10)
        finally:
            teacher.close()
    return teacher.lessons, endpoint


def every_other(refusal: Refusal, *, of: int = 2) -> Callable[[Body], Refusal | None]:
    turn, lock = iter(range(10_000)), threading.Lock()

    def refuse(body: Body) -> Refusal | None:
        with lock:
            return None if next(turn) % of == of - 1 else refusal

    return refuse


@pytest.mark.parametrize("body", [VAGUE[1], *PASSING], ids=range(1 + len(PASSING)))
def test_a_server_that_refuses_every_other_request_is_asked_again_and_teaches_nothing(body: Any) -> None:
    lessons, endpoint = asked_at(every_other((400, body)), *[ASKED] * 4)
    assert lessons == ()
    assert len(endpoint.answered) == len(endpoint.refused) == 4
    assert all(sent == endpoint.answered[0] for sent in (*endpoint.answered, *endpoint.refused))


@pytest.mark.parametrize("body", PASSING, ids=range(len(PASSING)))
@pytest.mark.parametrize("status", [200, 400])
def test_a_server_behind_that_keeps_failing_ends_the_call_as_one_that_is_not_reached(status: int, body: Any) -> None:
    with serving(replace(BY_NAME["openai"], refuse=lambda _: (status, body)), lambda _, n: []) as endpoint:
        teacher = teacher_at(endpoint.base_url)
        with pytest.raises(TeacherFailed) as failed:
            teacher.complete(ASKED, deadline_s=10)
        teacher.close()
    assert (failed.value.code, failed.value.retryable) == ("teacher_unreachable", True)
    assert failed.value.fault is TeacherFault.SERVER_ERROR
    assert len(endpoint.refused) == retry.MAX_ATTEMPTS
    assert all(sent == endpoint.refused[0] for sent in endpoint.refused)


def test_a_gateway_that_passes_on_what_is_wrong_is_understood() -> None:
    raw = json.dumps({"error": {"message": "Unknown parameter: 'seed'."}})
    wrapped = {"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": raw}}}
    lessons, endpoint = asked_at(lambda body: (400, wrapped) if "seed" in body else None, ASKED)
    assert lessons == (Lesson(option=Option.SEED),)
    assert len(endpoint.refused) == 1


def test_of_a_chain_of_guesses_the_last_is_kept_and_the_others_are_sent_again() -> None:
    lessons, endpoint = asked_at(lambda body: VAGUE if "seed" in body else None, ASKED, ASKED)
    assert lessons == (Lesson(option=Option.SEED),)
    first, second = endpoint.answered
    assert "logprobs" not in first
    assert {"logprobs", "response_format"} <= second.keys()
    assert "seed" not in second
    assert all(endpoint.refused.count(sent) == 2 for sent in endpoint.refused), "each was asked for again"


def test_several_options_that_are_refused_without_a_name_are_learnt_one_a_request() -> None:
    bad = {"seed", "logprobs", "response_format"}
    lessons, endpoint = asked_at(lambda body: VAGUE if bad & body.keys() else None, *[ASKED] * 5)
    assert {lesson.option for lesson in lessons} == {"seed", "logprobs", "response_format"}
    assert endpoint.answered[-1] == endpoint.answered[-2]
    assert {"n", "temperature", "max_tokens"} <= endpoint.answered[-1].keys()


def test_a_guess_is_not_kept_where_a_request_with_the_option_was_answered_before() -> None:
    n_asked = iter(range(100))
    lessons, endpoint = asked_at(lambda _: VAGUE if next(n_asked) in (1, 2) else None, *[ASKED] * 3)
    assert lessons == ()
    assert endpoint.answered[0] == endpoint.answered[2] != endpoint.answered[1]


def test_a_guess_before_a_refusal_that_names_an_option_is_none() -> None:
    named = 400, {"error": {"message": "Unsupported parameter: 'seed'"}}
    n_asked = iter(range(100))

    def refuse(body: Body) -> Refusal | None:
        return VAGUE if next(n_asked) < 2 else named if "seed" in body else None

    lessons, endpoint = asked_at(refuse, ASKED, ASKED)
    assert lessons == (Lesson(option=Option.SEED),)
    assert "logprobs" not in endpoint.answered[0]
    assert "logprobs" in endpoint.answered[1]


@pytest.mark.parametrize("body", PASSING, ids=range(len(PASSING)))
def test_a_line_of_a_batch_that_failed_behind_a_gateway_is_sent_again_and_teaches_nothing(body: Any) -> None:
    teacher = teacher_at("http://127.0.0.1:9/v1")
    sent = BatchRequest(name="a", request=ASKED, body=teacher.body_of(ASKED, ()))
    line = BatchLine(name="a", status=400, body=json.dumps(body).encode(), fault="", request_id="")
    failed = answer_of(line, sent)
    assert isinstance(failed, TeacherFailed)
    assert failed.retryable
    assert lesson_of(line, sent, teacher.dialect, ()) is None
    teacher.close()


def test_a_guess_is_stored_as_one() -> None:
    guess = Lesson(option=Option.SEED, is_guess=True)
    dated = Lesson(option=Option.N, value=1, scope="greedy", learnt_on="2026-11-26")
    assert lessons_from_json([guess.to_json(), dated.to_json(), ["seed", None]]) == (guess, dated, guess)
    read = lessons_from_json([guess.to_json(), dated.to_json(), ["seed", None]])
    assert [(lesson.is_guess, lesson.learnt_on) for lesson in read] == [(True, ""), (False, "2026-11-26"), (False, "")]
