"""Answers and stored drafts that do not add up: that draft is refused, nothing crashes, and the others are verified."""

import dataclasses
import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from backend.domain.drafts.vocabulary import Cost, DraftVerdict, StoredDraft
from tests.workers.teachers.tiny_language import CAPS, SOURCES, asked, drafts_of, policy, small_price, small_teacher
from workers.teachers.protocol import Choice, CompletionRequest, ScoreRequest, Teacher
from workers.teachers.verifiers.acceptance_rules import Rule
from workers.teachers.verifiers.conversations import together
from workers.teachers.verifiers.logprob_verifier import LogprobVerifier
from workers.teachers.verifiers.protocol import Answer, Conversation, cost_of

COVERED = policy(1.0, 1024)
Lie = Callable[[Choice], Choice]


@pytest.fixture(scope="module")
def teacher() -> Iterator[Teacher]:
    with small_teacher() as made:
        yield made


def hold(
    teacher: Teacher, conversation: Conversation, lie: Callable[[ScoreRequest, Answer], Answer]
) -> list[DraftVerdict]:
    """The conversation, with what the teacher says of given texts changed on the way."""

    def ask(request: CompletionRequest | ScoreRequest) -> Answer:
        if isinstance(request, CompletionRequest):
            done = teacher.complete(request, deadline_s=10)
        else:
            done = teacher.score(request, deadline_s=10)
        answer = Answer(choices=done.choices, cost=cost_of(small_price(), done.usage), revision=done.revision)
        return lie(request, answer) if isinstance(request, ScoreRequest) else answer

    try:
        requests = next(conversation)
        while True:
            requests = conversation.send([ask(request) for request in requests])
    except StopIteration as ended:
        return list(ended.value.verdicts)


def changed(**fields: Callable[[Choice], Any]) -> Lie:
    return lambda choice: dataclasses.replace(choice, **{name: make(choice) for name, make in fields.items()})


def rows(choice: Choice) -> tuple[float, ...]:
    return choice.token_logprobs or ()


LIES: dict[str, Lie] = {
    "no tokens": changed(tokens=lambda c: None),
    "no log-probs": changed(token_logprobs=lambda c: None),
    "other tokens": changed(tokens=lambda c: ("hi refund", *(c.tokens or ())[2:], "", "")),
    "one letter apart": changed(tokens=lambda c: ("hI", *(c.tokens or ())[1:])),
    "too few rows": changed(token_logprobs=lambda c: rows(c)[:-1]),
    "too many rows": changed(token_logprobs=lambda c: (*rows(c), 0.0)),
    "no end": changed(
        tokens=lambda c: (c.tokens or ())[:-1],
        token_logprobs=lambda c: rows(c)[:-1],
        top_logprobs=lambda c: (c.top_logprobs or ())[:-1],
    ),
    "more tokens than the text": changed(
        tokens=lambda c: (*(c.tokens or ()), "x"),
        token_logprobs=lambda c: (*rows(c), -1.0),
        top_logprobs=lambda c: (*(c.top_logprobs or ()), ()),
    ),
    "NaN": changed(token_logprobs=lambda c: (math.nan, *rows(c)[1:])),
    "infinity": changed(token_logprobs=lambda c: (-math.inf, *rows(c)[1:])),
    "a positive log-prob": changed(token_logprobs=lambda c: (0.5, *rows(c)[1:])),
    "alternatives for other places": changed(top_logprobs=lambda c: (c.top_logprobs or ())[:-1]),
    "a token likelier than among the alternatives": changed(token_logprobs=lambda c: tuple(p / 2 for p in rows(c))),
}


@pytest.mark.parametrize("rule", [Rule.STORED, Rule.BLOCK])
@pytest.mark.parametrize("name", LIES)
def test_a_score_that_does_not_add_up_refuses_its_draft_and_no_other(teacher: Teacher, name: str, rule: Rule) -> None:
    drafts = drafts_of(teacher, "old", COVERED, 100, seed=3)
    lied = next(d for d in drafts if d.text == "hi refund it")
    honest = next(d for d in drafts if d.text.startswith("hello"))

    def lie(request: ScoreRequest, answer: Answer) -> Answer:
        if not request.text.startswith("hi"):
            return answer
        return dataclasses.replace(answer, choices=tuple(LIES[name](c) for c in answer.choices))

    conversation = LogprobVerifier(CAPS, rule=rule).verify(asked("new", COVERED), [lied, honest], random.Random(1))
    refused, kept = hold(teacher, conversation, lie)
    assert refused == DraftVerdict(draft_id=lied.draft_id, is_accepted=False, cost_microusd=refused.cost_microusd)
    assert kept.certificate is not None
    assert kept.text


def test_no_choice_at_all_refuses(teacher: Teacher) -> None:
    drafts = drafts_of(teacher, "old", COVERED, 5, seed=3)
    conversation = LogprobVerifier(CAPS).verify(asked("new", COVERED), drafts, random.Random(1))
    verdicts = hold(teacher, conversation, lambda request, answer: dataclasses.replace(answer, choices=()))
    assert [(v.is_accepted, v.text, v.certificate) for v in verdicts] == [(False, "", None)] * 5


def test_a_revision_that_changes_in_the_middle_refuses(teacher: Teacher) -> None:
    drafts = drafts_of(teacher, "old", COVERED, 20, seed=3)
    conversation = LogprobVerifier(CAPS, chunk_tokens=1).verify(asked("far", COVERED), drafts, random.Random(1))
    verdicts = hold(
        teacher,
        conversation,
        lambda request, answer: dataclasses.replace(
            answer, revision="new one" if "Slice: old" in told(request) else ""
        ),
    )
    again = LogprobVerifier(CAPS, chunk_tokens=1).verify(asked("far", COVERED), drafts, random.Random(1))
    assert any(v.certificate is None for v in verdicts)
    assert all(v.certificate is not None or not v.is_accepted for v in verdicts)
    assert all(v.certificate is not None for v in hold(teacher, again, lambda request, answer: answer))


def told(request: ScoreRequest) -> str:
    return request.messages[-1].content


@pytest.mark.parametrize("shift", [0.05, -0.05])
def test_an_old_prompt_that_no_longer_says_what_was_stored_is_noticed_where_a_draft_stops(
    teacher: Teacher, shift: float
) -> None:
    """Another revision under the same name, or log-probs that were not the sampled ones."""
    drafts = [
        dataclasses.replace(d, token_logprobs=tuple(min(0.0, p + shift) for p in d.token_logprobs or ()))
        for d in drafts_of(teacher, "old", COVERED, 60, seed=3)
    ]
    conversation = LogprobVerifier(CAPS).verify(asked("new", COVERED), drafts, random.Random(1))
    for verdict in hold(teacher, conversation, lambda request, answer: answer):
        assert verdict.certificate is None or verdict.is_accepted
        assert verdict.is_accepted or verdict.text == ""


@pytest.mark.parametrize("rule", [Rule.BLOCK, Rule.TOKEN])
def test_drafts_of_another_temperature_are_noticed_where_the_old_prompt_is_scored(teacher: Teacher, rule: Rule) -> None:
    drafts = drafts_of(teacher, "old", policy(0.5), 60, seed=3)
    conversation = LogprobVerifier(CAPS, rule=rule).verify(asked("new", policy()), drafts, random.Random(1))
    assert all(v.certificate is None for v in hold(teacher, conversation, lambda request, answer: answer))


def test_a_teacher_that_breaks_its_promise_to_tell_all_alternatives_is_refused_by_the_stored_rule(
    teacher: Teacher,
) -> None:
    drafts = drafts_of(teacher, "old", COVERED, 10, seed=3)
    conversation = LogprobVerifier(CAPS).verify(asked("new", COVERED), drafts, random.Random(1))

    def cut(request: ScoreRequest, answer: Answer) -> Answer:
        (choice,) = answer.choices
        top = tuple(row[:1] for row in choice.top_logprobs or ())
        return dataclasses.replace(answer, choices=(dataclasses.replace(choice, top_logprobs=top),))

    assert all(v.certificate is None for v in hold(teacher, conversation, cut))


GOOD = StoredDraft(
    draft_id=SOURCES["far"],
    source_id=SOURCES["old"],
    text="hi refund it",
    n_tokens=4,
    distance=0.1,
    tokens=("hi", " refund", " it", "<|end|>"),
    token_logprobs=(-0.3, -0.7, -0.7, -0.4),
)


@pytest.mark.parametrize(
    "broken",
    [
        {"text": ""},
        {"tokens": None},
        {"tokens": ()},
        {"text": "hi refund  it"},
        {"tokens": ("hi", "refund", "it", "<|end|>")},
        {"token_logprobs": (-0.3, -0.7)},
        {"token_logprobs": (-0.3, -0.7, math.nan, -0.4)},
        {"token_logprobs": (-0.3, -0.7, -math.inf, -0.4)},
        {"token_logprobs": (-0.3, -0.7, 0.7, -0.4)},
        {"n_tokens": 10**9},
        {"text": "hi" * 1000, "tokens": ("hi",) * 1000, "token_logprobs": (-0.1,) * 1000, "n_tokens": 1000},
    ],
)
def test_a_stored_draft_that_is_not_whole_costs_nothing(teacher: Teacher, broken: dict[str, Any]) -> None:
    draft = dataclasses.replace(GOOD, **broken)
    conversation = LogprobVerifier(CAPS).verify(asked("new", COVERED), [draft], random.Random(1))
    (verdict,) = hold(teacher, conversation, lambda request, answer: answer)
    assert verdict == DraftVerdict(draft_id=draft.draft_id, is_accepted=False)


def test_a_draft_whose_old_prompt_is_gone_goes_by_the_point_mass(teacher: Teacher) -> None:
    how = dataclasses.replace(asked("new", COVERED), old_messages={})
    asked_for: list[str] = []

    def overhear(request: ScoreRequest, answer: Answer) -> Answer:
        asked_for.append(told(request))
        return answer

    verdicts = hold(teacher, LogprobVerifier(CAPS).verify(how, [GOOD] * 20, random.Random(1)), overhear)
    assert all(v.certificate is not None for v in verdicts)
    assert not any("Slice: old" in content for content in asked_for)


def test_no_drafts_are_no_conversation() -> None:
    conversation = LogprobVerifier(CAPS).verify(asked("new", COVERED), [], random.Random(1))
    with pytest.raises(StopIteration) as ended:
        next(conversation)
    assert ended.value.value.verdicts == ()
    assert ended.value.value.cost == Cost()


def test_conversations_of_different_lengths_are_held_together() -> None:
    def part(n: int) -> Any:
        got = []
        for i in range(n):
            answers = yield [f"{n}.{i}"] * n
            got.append(answers)
        return got

    both = together([part(0), part(2), part(1)])
    assert next(both) == ["2.0", "2.0", "1.0"]
    assert both.send(["a", "b", "c"]) == ["2.1", "2.1"]
    with pytest.raises(StopIteration) as ended:
        both.send(["d", "e"])
    assert ended.value.value == [[], [["a", "b"], ["d", "e"]], [["c"]]]
