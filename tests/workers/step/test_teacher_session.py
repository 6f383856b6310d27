"""Which teacher a spec gets, and what it may reach."""

import pytest

from backend.domain.errors import InvalidSpec
from backend.domain.spec.parsing import Teacher
from tests.workers.teachers.hostile import HostileTeacher, answer
from workers.step.teacher_session import make_teacher
from workers.teachers.protocol import CompletionRequest, Message, TeacherFailed
from workers.teachers.protocol import Teacher as TeacherProtocol

REQUEST = CompletionRequest(messages=(Message(role="user", content="hi"),))


def make(
    spec: Teacher,
    *,
    recording: bytes | None = None,
    allowed: str | None = None,
    grammar_url: str = "http://127.0.0.1:1/v1",
) -> TeacherProtocol:
    return make_teacher(
        spec,
        api_key=None,
        recording=recording,
        allowed_private_origins=frozenset({allowed} if allowed else ()),
        grammar_url=grammar_url,
    )


def test_each_provider_tells_what_it_can() -> None:
    grammar = make(Teacher(provider="grammar", model="kolm-grammar-1"))
    vendor = make(Teacher(provider="openai_compatible", model="m", base_url="https://llm.example.com/v1"))
    replay = make(Teacher(provider="replay", model="r"), recording=b"")
    assert [t.caps.prompt_logprobs for t in (grammar, vendor, replay)] == [True, False, False]
    assert len(grammar.identity.revision) == 64
    assert (vendor.identity.provider, vendor.identity.model, vendor.identity.revision) == ("openai_compatible", "m", "")
    for teacher in (grammar, vendor, replay):
        teacher.close()


def test_what_a_provider_needs_is_asked_for_by_its_place_in_the_spec() -> None:
    for spec, pointer in (
        (Teacher(provider="replay", model="r"), "/teacher/recording"),
        (Teacher(provider="openai_compatible", model="m"), "/teacher/base_url"),
    ):
        with pytest.raises(InvalidSpec) as caught:
            make(spec)
        assert caught.value.problems[0].pointer == pointer


def test_a_customers_base_url_reaches_a_private_origin_only_where_the_deployment_allows_it() -> None:
    with HostileTeacher(answer(404, b"")) as server:
        spec = Teacher(provider="openai_compatible", model="m", base_url=server.base_url)
        for allowed, n_requests in ((None, 0), (server.base_url, 1)):
            # the embedded grammar's address is no loophole for customers
            teacher = make(spec, allowed=allowed, grammar_url=server.base_url)
            with pytest.raises(TeacherFailed):
                teacher.complete(REQUEST, deadline_s=3)
            teacher.close()
            assert len(server.requests) == n_requests
