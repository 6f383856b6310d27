"""Begun answers, top-k and alternatives of the grammar teacher over HTTP, against the enumerated language."""

import dataclasses
import math
from collections.abc import Iterator

import httpx
import pytest

from tests.backend.domain.drafts.draft_worlds import answers, chi_square_p, grammar_world
from tests.workers.teachers.tiny_language import (
    CAPS,
    asked,
    asks,
    counted,
    drafts_of,
    expected,
    language,
    policy,
    small_model,
    small_teacher,
    text_of,
)
from workers.teachers.grammar.model import Policy
from workers.teachers.grammar.pcfg import END
from workers.teachers.grammar.refusal import NotOurPrompt
from workers.teachers.grammar.server import GrammarServer, serving
from workers.teachers.protocol import CompletionRequest, ScoreRequest, Teacher, TeacherFailed


@pytest.fixture(scope="module")
def teacher() -> Iterator[Teacher]:
    with small_teacher() as made:
        yield made


@pytest.fixture(scope="module")
def server() -> Iterator[GrammarServer]:
    with serving(small_model()) as running:
        yield running


def drawn(teacher: Teacher, n: int = 1000, **more: object) -> CompletionRequest:
    return dataclasses.replace(asked("new", policy()).request, n=n, seed=5, **more)


@pytest.mark.parametrize("top_k", [1, 2, 3, 1000])
def test_under_top_k_the_teacher_samples_the_renormalised_likeliest_and_says_so(teacher: Teacher, top_k: int) -> None:
    how = policy(0.7, top_k)
    told = language("new", how)
    drafts = drafts_of(teacher, "new", how, 1000, seed=5)
    assert chi_square_p(counted([d.text for d in drafts]), expected(told)) > 1e-4
    for draft in drafts[:50]:
        assert math.exp(math.fsum(draft.token_logprobs or ())) == pytest.approx(told[draft.text], rel=1e-9)


@pytest.mark.parametrize("prefix", ["hi", "hello refund", "hi refund it please"])
def test_a_begun_answer_is_gone_on_from_with_the_conditional_distribution(teacher: Teacher, prefix: str) -> None:
    begun = teacher.complete(drawn(teacher, prefix=prefix), deadline_s=10)
    world = grammar_world("new")
    path = tuple(prefix.replace(" ", "| ").split("|"))
    rest = {text_of(whole)[len(prefix) :]: p for whole, p in answers(world, path).items()}
    assert chi_square_p(counted([c.text for c in begun.choices]), expected(rest)) > 1e-4
    for choice in begun.choices[:50]:
        assert choice.logprob is not None
        assert math.exp(choice.logprob) == pytest.approx(rest[choice.text])
    assert begun.usage.output_tokens == sum(c.n_tokens for c in begun.choices)


def test_a_prefix_that_no_answer_has_is_refused(teacher: Teacher) -> None:
    for prefix in ("pony", "h", "hi refund it please and"):
        with pytest.raises(TeacherFailed) as caught:
            teacher.complete(drawn(teacher, n=1, prefix=prefix), deadline_s=5)
        assert caught.value.code == "teacher_rejected"


def test_a_teacher_that_cannot_go_on_is_not_asked() -> None:
    with small_teacher(dataclasses.replace(CAPS, prefix=False)) as plain:
        with pytest.raises(TeacherFailed) as caught:
            plain.complete(drawn(plain, n=1, prefix="hi"), deadline_s=5)
        assert caught.value.usage is None


@pytest.mark.parametrize("top_k", [None, 2])
def test_every_token_comes_with_all_its_alternatives(teacher: Teacher, top_k: int | None) -> None:
    request = drawn(teacher, n=30, top_logprobs=1024, top_k=top_k)
    world = grammar_world("new", top_k=top_k)
    for choice in teacher.complete(request, deadline_s=10).choices:
        assert choice.tokens is not None
        assert choice.top_logprobs is not None
        assert choice.tokens[-1] == END
        for i, row in enumerate(choice.top_logprobs):
            assert {t: math.exp(p) for t, p in row} == pytest.approx(dict(world[choice.tokens[:i]]))
            assert [p for _, p in row] == sorted((p for _, p in row), reverse=True)


@pytest.mark.parametrize("top_k", [None, 1, 2])
def test_a_given_text_is_scored_with_the_alternatives_at_each_place(teacher: Teacher, top_k: int | None) -> None:
    request = ScoreRequest(messages=asks("new"), text="hi refund order", top_logprobs=1024, top_k=top_k)
    done = teacher.score(request, deadline_s=5)
    (choice,) = done.choices
    world = grammar_world("new", top_k=top_k)
    assert choice.tokens == ("hi", " refund", " order", END)
    assert choice.top_logprobs is not None
    assert choice.token_logprobs is not None
    for i, (row, logprob) in enumerate(zip(choice.top_logprobs, choice.token_logprobs, strict=True)):
        place = world.get(choice.tokens[:i])
        if place is not None:
            assert {t: math.exp(p) for t, p in row} == pytest.approx(dict(place))
            assert math.exp(logprob) == pytest.approx(place.get(choice.tokens[i], 0.0))
    assert done.usage.output_tokens == 0
    assert not done.usage.disputed


def test_a_text_that_cannot_be_has_no_alternatives_behind_the_place_where_it_leaves(teacher: Teacher) -> None:
    request = ScoreRequest(messages=asks("new"), text="hi pony it", top_logprobs=5)
    (choice,) = teacher.score(request, deadline_s=5).choices
    assert choice.top_logprobs is not None
    assert [len(row) > 0 for row in choice.top_logprobs] == [True, True, False, False]
    assert choice.token_logprobs is not None
    assert [p > -100 for p in choice.token_logprobs] == [True, False, False, False]


def test_without_prefix_and_top_k_the_seeded_answers_are_the_ones_they_were() -> None:
    """Compiles are replayed by their seeds: a draw by rules, not by tokens."""
    model = small_model()
    (message,) = asks("new")
    plain = [w.text for w in model.answer(message.content, n=20, seed=1, policy=Policy())]
    told = [w.text for w in model.answer(message.content, n=20, seed=1, policy=Policy(n_top=5))]
    assert plain == told
    with pytest.raises(NotOurPrompt):
        model.answer(message.content, n=1, seed=1, policy=Policy(prefix="pony"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"continue_final_message": True, "add_generation_prompt": False},
        {"continue_final_message": True, "messages_end": "hi"},
        {"continue_final_message": True, "messages_end": "hi", "add_generation_prompt": True},
        {"top_k": -2},
        {"top_k": 1.5},
        {"top_k": "all"},
        {"logprobs": True, "top_logprobs": 1025},
        {"logprobs": True, "top_logprobs": -1},
    ],
)
def test_a_request_that_breaks_the_protocol_is_a_400(server: GrammarServer, wrong: dict[str, object]) -> None:
    messages = [{"role": m.role, "content": m.content} for m in asks("new")]
    if "messages_end" in wrong:
        messages.append({"role": "assistant", "content": str(wrong.pop("messages_end"))})
    response = httpx.post(server.url + "/chat/completions", json={"messages": messages, **wrong}, trust_env=False)
    assert response.status_code == 400


def test_vllms_spelling_of_no_top_k_is_taken(server: GrammarServer) -> None:
    messages = [{"role": m.role, "content": m.content} for m in asks("new")]
    for top_k in (0, -1, None):
        body = {"messages": messages, "top_k": top_k, "seed": 3}
        assert httpx.post(server.url + "/chat/completions", json=body, trust_env=False).status_code == 200
