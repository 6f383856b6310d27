"""The client's score of a text over HTTP, against a server that answers in vLLM's shapes."""

import math
from collections.abc import Iterator

import pytest

from tests.workers.teachers.vllm.small_vllm import END, MODEL, SmallVllm, small_vllm
from workers.teachers.protocol import Message, ScoreRequest, TeacherCaps, TeacherFailed, TeacherIdentity
from workers.teachers.vllm.teacher import VllmTeacher

ASKED = (Message(role="system", content="Answer."), Message(role="user", content="How much?"))
REQUEST = ScoreRequest(messages=ASKED, text="It is 4", top_logprobs=20)


def client(server: SmallVllm) -> VllmTeacher:
    return VllmTeacher(
        identity=TeacherIdentity(provider="openai_compatible", model=MODEL),
        base_url=server.base_url,
        api_key=None,
        caps=TeacherCaps(prompt_logprobs=True, max_top_logprobs=20),
        allowed_origins=frozenset({server.origin}),
    )


@pytest.fixture
def server() -> Iterator[SmallVllm]:
    with small_vllm() as running:
        yield running


def test_the_answer_and_its_end_are_scored_after_the_prompt_as_ids(server: SmallVllm) -> None:
    teacher = client(server)
    scored = teacher.score(REQUEST, deadline_s=10)
    teacher.close()
    (choice,) = scored.choices
    assert choice.tokens == ("It", " is", " 4", END)
    assert choice.token_logprobs == pytest.approx([math.log(0.9)] * 4)
    assert choice.top_logprobs is not None
    assert [name for name, _ in choice.top_logprobs[1]] == [" is", " other"]
    (body,) = server.bodies["/v1/completions"]
    assert server.text_of(body["prompt"]) == (f"<|system|>Answer.{END}<|user|>How much?{END}<|assistant|>It is 4{END}")
    assert {name: body[name] for name in ("model", "prompt_logprobs", "max_tokens")} == {
        "model": MODEL,
        "prompt_logprobs": 20,
        "max_tokens": 1,
    }
    assert (scored.usage.input_tokens, scored.usage.output_tokens) == (len(body["prompt"]), 1)


def test_how_the_template_ends_an_answer_is_asked_for_once(server: SmallVllm) -> None:
    teacher = client(server)
    for _ in range(3):
        teacher.score(REQUEST, deadline_s=10)
    teacher.close()
    closed = [body for body in server.bodies["/tokenize"] if body.get("add_generation_prompt") is False]
    assert len(closed) == 1


@pytest.mark.parametrize(
    ("fields", "code"), [({"max_logprobs": 5}, "teacher_rejected"), ({"tells": False}, "teacher_protocol")]
)
def test_a_server_that_tells_too_little_is_a_failure_of_the_teacher(fields: dict[str, object], code: str) -> None:
    with small_vllm(**fields) as running:
        teacher = client(running)
        with pytest.raises(TeacherFailed) as failed:
            teacher.score(REQUEST, deadline_s=10)
        teacher.close()
    assert failed.value.code == code
