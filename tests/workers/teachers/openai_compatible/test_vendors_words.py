"""Each refusal has the fault that it is, whatever words a vendor has for it (`vendors_words`)."""

from typing import Any

import pytest

from backend.domain.dialects.faults import TeacherFault
from tests.workers.teachers.hostile import HostileTeacher, answer
from tests.workers.teachers.openai_compatible.test_endpoint_faults import PAGE, failure_at, teacher_at
from tests.workers.teachers.openai_compatible.test_teacher import REQUEST, assert_no_secret
from tests.workers.teachers.openai_compatible.vendors_words import (
    MAY_PASS,
    NO_ACCESS,
    NO_QUOTA,
    NO_SUCH_MODEL,
    NO_SUCH_PATH,
    NOT_CHAT,
    WRONG_KEY,
    refusal,
)
from workers.teachers.openai_compatible.endpoint_faults import fault_of
from workers.teachers.protocol import TeacherFailed

ROWS = [
    *((*case, TeacherFault.WRONG_KEY) for case in WRONG_KEY),
    *((*case, TeacherFault.NO_QUOTA) for case in NO_QUOTA),
    *((*case, None) for case in MAY_PASS),
    *((*case, TeacherFault.NO_SUCH_MODEL) for case in NO_SUCH_MODEL),
    *((*case, TeacherFault.NOT_A_CHAT_MODEL) for case in NOT_CHAT),
    *((*case, TeacherFault.NO_ACCESS) for case in NO_ACCESS),
    *((*case, TeacherFault.NO_SUCH_PATH) for case in NO_SUCH_PATH),
    ("a page", 404, PAGE, TeacherFault.HTML),
]


def ids(rows: list[Any]) -> list[str]:
    return [f"{row[0]}, {row[1]}" for row in rows]


@pytest.mark.parametrize(("name", "status", "body", "fault"), ROWS, ids=ids(ROWS))
def test_a_refusal_has_the_fault_that_it_is_in_each_vendors_words(name, status, body, fault) -> None:
    assert fault_of(status, body) is fault


ASKED_ONCE = [row for row in ROWS if row[1] == 400]


@pytest.mark.parametrize(("name", "status", "body", "fault"), ASKED_ONCE, ids=ids(ASKED_ONCE))
def test_a_wrong_model_is_asked_for_once_and_is_no_option_of_the_request(name, status, body, fault) -> None:
    with HostileTeacher(answer(status, body)) as hostile:
        teacher = teacher_at(hostile.base_url)
        with pytest.raises(TeacherFailed) as caught:
            teacher.complete(REQUEST, deadline_s=30.0)
        teacher.close()
    assert_no_secret(caught.value)
    assert (caught.value.fault, len(hostile.requests), teacher.lessons) == (fault, 1, ())


@pytest.mark.parametrize(
    "message",
    [
        "Unsupported parameter: 'top_p' is not supported with this model.",
        "`temperature` is deprecated for this model.",
        "This model does not support the temperature. The value was not found in the list.",
        "Multiple candidates is not enabled for this model",
        "The model gpt-5.1 does not support chat_template_kwargs",
        "Cannot find field: seed in the model config.",
    ],
)
def test_a_refusal_of_an_option_that_speaks_of_the_model_is_not_about_it(message: str) -> None:
    assert fault_of(400, refusal(message)) is TeacherFault.OTHER_REFUSAL


@pytest.mark.parametrize(("name", "status", "body"), WRONG_KEY, ids=ids(WRONG_KEY))
def test_a_key_that_was_not_sent_is_missing_and_not_wrong(name, status, body) -> None:
    assert fault_of(status, body, has_key=False) is TeacherFault.NO_KEY


@pytest.mark.parametrize("name", ["fireworks", "a page of 402"])
def test_an_account_without_credit_is_asked_once_whatever_the_status(name: str) -> None:
    ((_, status, body),) = [case for case in NO_QUOTA if case[0] == name]
    failed = failure_at(answer(status, body))
    assert (failed.code, failed.fault, failed.n_attempts) == ("teacher_rejected", TeacherFault.NO_QUOTA, 1)


def test_words_without_end_are_judged_in_no_time() -> None:
    for words in ("model ", "models/", "api key ", "route ", "model: ", "account "):
        assert fault_of(404, refusal(words * (60_000 // len(words)))) in (
            TeacherFault.NO_SUCH_PATH,
            TeacherFault.NO_SUCH_MODEL,
        )
