"""What real servers refuse, and what the client makes of it: an option is left out or lowered; a wrong model and a
prompt that is too long are told apart from one, and are asked for once."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace

import pytest

from backend.domain.dialects.dialect import Dialect, Option
from backend.domain.dialects.faults import TeacherFault
from backend.domain.dialects.table import BY_NAME, UNKNOWN
from tests.workers.real_servers.servers import CONTEXT, SLOTS
from tests.workers.real_servers.wire import Wire
from workers.teachers.openai_compatible.teacher import OpenAICompatibleTeacher
from workers.teachers.protocol import CompletionRequest, Message, TeacherCaps, TeacherFailed, TeacherIdentity

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]
ASKED = (
    Message(role="system", content="You are brief."),
    Message(role="user", content="Write a word that rhymes with house."),
)
EVERYTHING = CompletionRequest(
    messages=ASKED,
    n=SLOTS + 2,
    temperature=1.0,
    top_p=0.9,
    top_k=40,
    max_tokens=16,
    seed=7,
    logprobs=True,
    top_logprobs=5,
    effort="low",
    cache_key="k",
    answer_schema='{"type":"object","properties":{"word":{"enum":["mouse","grouse"]}},"required":["word"],'
    '"additionalProperties":false}',
)
PATIENCE_S = 600.0


def teacher_at(wire: Wire, *, dialect: Dialect = UNKNOWN, model: str | None = None) -> OpenAICompatibleTeacher:
    return OpenAICompatibleTeacher(
        identity=TeacherIdentity(provider="openai_compatible", model=model or wire.server.model),
        base_url=wire.base_url,
        api_key=None,
        caps=TeacherCaps(logprobs=True, max_top_logprobs=20),
        dialect=dialect,
        allowed_origins=frozenset({wire.origin}),
    )


@pytest.fixture
def teacher(wire: Wire) -> Iterator[OpenAICompatibleTeacher]:
    """Knows nothing of the endpoint."""
    made = teacher_at(wire)
    yield made
    made.close()


def test_a_request_with_every_option_is_answered_and_loses_only_what_the_server_lacks(
    wire: Wire, teacher: OpenAICompatibleTeacher
) -> None:
    completion = teacher.complete(EVERYTHING, deadline_s=PATIENCE_S)
    print([one.answered for one in wire.refused], teacher.lessons)
    assert completion.choices
    row = BY_NAME[wire.server.name]
    dropped = {lesson.option for lesson in teacher.lessons if lesson.value is None}
    assert dropped.isdisjoint(row.takes), "an option that the server takes was lost to a refusal of another"
    assert len(wire.refused) == len(teacher.lessons) <= 3


def test_the_same_request_is_refused_nothing_by_the_servers_own_row(wire: Wire) -> None:
    with contextlib.closing(teacher_at(wire, dialect=BY_NAME[wire.server.name])) as teacher:
        completion = teacher.complete(EVERYTHING, deadline_s=PATIENCE_S)
    print([one.answered for one in wire.refused], teacher.lessons)
    assert completion.choices
    # how many choices a llama-server gives is its owner's setting: the one thing that is left to learn
    assert {lesson.option for lesson in teacher.lessons} <= {Option.N}


def test_a_model_that_is_not_there_is_told_apart_and_asked_for_once(wire: Wire) -> None:
    if wire.server.name == "llama-server":
        pytest.skip("llama-server answers with the model that it has, whatever is asked for")
    teacher = teacher_at(wire, model="no-such-model")
    with pytest.raises(TeacherFailed) as failed:
        teacher.complete(CompletionRequest(messages=ASKED, max_tokens=8), deadline_s=PATIENCE_S)
    teacher.close()
    print([one.answered for one in wire.refused])
    assert failed.value.fault is TeacherFault.NO_SUCH_MODEL
    assert len(wire.refused) == 1


def test_a_prompt_that_is_too_long_is_refused_once_and_teaches_nothing(
    wire: Wire, teacher: OpenAICompatibleTeacher
) -> None:
    if wire.server.name == "transformers":
        pytest.skip("transformers takes what the model's own 32,768 places hold, which takes a CPU minutes")
    long = Message(role="user", content="house mouse " * CONTEXT)
    with pytest.raises(TeacherFailed) as failed:
        teacher.complete(CompletionRequest(messages=(long,), max_tokens=8, seed=1), deadline_s=PATIENCE_S)
    print([one.answered for one in wire.refused], failed.value)
    assert failed.value.code == "teacher_rejected"
    assert len(wire.refused) == 1
    assert teacher.lessons == ()


def test_an_answer_that_would_not_fit_beside_its_prompt_is_asked_for_shorter(
    wire: Wire, teacher: OpenAICompatibleTeacher
) -> None:
    if wire.server.name != "vllm":
        pytest.skip("releases of vLLM alone refuse a limit that the context has no room for")
    for_json = Message(role="user", content=f'{ASKED[1].content} Answer with JSON like {{"word": "louse"}}.')
    asked = replace(EVERYTHING, messages=(for_json,), max_tokens=CONTEXT, n=1, temperature=0.0)
    completion = teacher.complete(asked, deadline_s=PATIENCE_S)
    print([one.answered for one in wire.refused], teacher.lessons)
    assert completion.choices[0].text
    assert {lesson.option for lesson in teacher.lessons} <= {Option.TOKEN_LIMIT}
    assert len(wire.refused) == len(teacher.lessons) <= 1
