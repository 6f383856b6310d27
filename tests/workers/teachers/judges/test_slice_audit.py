"""An accepted draft asked about again, in other words."""

import dataclasses
import random

import pytest

from backend.domain.drafts.judge_controls import ControlCounts, audits_of, controls_of
from backend.domain.drafts.vocabulary import Cost, DraftVerdict, VerdictKind, Verification
from tests.workers.teachers.judges.numbered_judges import (
    COST,
    NumberedJudge,
    Shown,
    accepts_all,
    drafts_of,
    hold,
    question_of,
    shown_in,
    slice_of,
)
from tests.workers.teachers.prompts.malformed_numbers import MALFORMED
from workers.teachers.judges.batches import MAX_BATCH_CHARS
from workers.teachers.judges.compile_judge import judge_compile
from workers.teachers.judges.off_topic import OFF_TOPIC
from workers.teachers.judges.slice_audit import MAX_ASKS, audit_slice
from workers.teachers.prompts.number_ranges import as_ranges
from workers.teachers.protocol import Choice
from workers.teachers.verifiers.protocol import Answer, TeacherRequest

ONE = slice_of(0, [], n_fresh=6)


def audit(
    text: str, judge: NumberedJudge, *, seed: int = 1, has_schema: bool = False, n_fresh: int = 6
) -> tuple[Verification, list[list[TeacherRequest]]]:
    one = dataclasses.replace(ONE, positives=ONE.positives[:n_fresh])
    question = question_of(one, has_schema=has_schema)
    return hold(audit_slice(question, one, drafts_of([text])[0], random.Random(seed)), judge)


def finds_strangers(shown: dict[int, Shown]) -> str:
    return as_ranges(number for number, one in shown.items() if not one.belongs)


def test_a_draft_that_is_left_in_is_accepted_at_once() -> None:
    found, rounds = audit("ask for it", finds_strangers)
    (verdict,) = found.verdicts
    expected = DraftVerdict(
        draft_id=drafts_of([""])[0].draft_id, is_accepted=True, kind=VerdictKind.AUDIT, cost_microusd=77
    )
    assert verdict == expected
    assert controls_of(found.controls) == ControlCounts(n_negative=2, n_positive=4, n_positive_accepted=4)
    assert found.audit_cost == found.cost == COST
    assert len(rounds) == 1
    shown = [one.text for one in shown_in(rounds[0][0]).values()]
    assert sorted(text.split()[1] for text in shown) == ["for", *["fresh"] * 4, *["negative"] * 2]


def test_a_bad_one_is_named_twice_in_other_company_each_time() -> None:
    found, rounds = audit("late again", finds_strangers)
    assert [verdict.is_accepted for verdict in found.verdicts] == [False, False]
    audits = audits_of(found.verdicts)
    assert (audits.n, audits.n_refused, audits.n_refused_twice) == (1, 1, 1)
    assert found.cost == COST + COST
    first, second = ([one.text for one in shown_in(requests[0]).values()] for requests in rounds)
    negatives = [text for text in first + second if "negative" in text]
    assert len(set(negatives)) == 4


def test_a_doubtful_one_is_asked_about_until_one_answer_leaves_it_in() -> None:
    asked: list[int] = []

    def judge(shown: dict[int, Shown]) -> str:
        asked.append(len(shown))
        return as_ranges(
            n for n, one in shown.items() if "negative" in one.text or (one.text == "doubtful" and len(asked) < 2)
        )

    found, _ = audit("doubtful", judge)
    assert [verdict.is_accepted for verdict in found.verdicts] == [False, True]
    audits = audits_of(found.verdicts)
    assert (audits.n, audits.n_refused, audits.n_refused_twice) == (1, 1, 0)


@pytest.mark.parametrize(
    "judge",
    [
        lambda shown: "none",
        accepts_all,
        lambda shown: as_ranges(n for n, one in shown.items() if one.text.endswith("negative 3")),
        *(lambda shown, answer=answer: answer for answer in MALFORMED[::9]),
    ],
)
def test_an_answer_that_leaves_a_control_in_or_names_all_or_is_none_is_void(judge: NumberedJudge) -> None:
    found, rounds = audit("ask", judge)
    assert [verdict.kind for verdict in found.verdicts] == [VerdictKind.VOID] * MAX_ASKS
    assert (found.is_void, len(rounds), audits_of(found.verdicts).n) == (True, MAX_ASKS, 0)
    assert found.cost.n_requests == MAX_ASKS


def test_an_answer_that_was_cut_or_has_no_choice_is_void() -> None:
    conversation = audit_slice(question_of(ONE), ONE, drafts_of(["ask"])[0], random.Random(1))
    next(conversation)
    for choices in ((), (Choice(text="1", finish_reason="length"),), ()):
        conversation.send([Answer(choices=choices, cost=COST)])
    with pytest.raises(StopIteration) as ended:
        conversation.send([Answer(choices=(), cost=COST)])
    assert ended.value.value.is_void


def test_it_is_another_question_than_the_judges() -> None:
    """Other instructions and another order; no line of the one stands in the other but the task's and the slice's."""
    one = dataclasses.replace(ONE, drafts=drafts_of(["ask"]))
    (asked,) = next(judge_compile(question_of(one), random.Random(1)))
    (again,) = next(audit_slice(question_of(one), one, one.drafts[0], random.Random(1)))
    first, second = (request.messages[1].content.split("\n") for request in (asked, again))
    assert asked.messages[0] != again.messages[0]
    common = {line for line in first if line in second and not line.startswith("~")}
    assert common <= {"Task: route messages", "Labels: 0 | 1 | 2 | 3 | 4", "Hint: ask", "Label: 0"}
    assert second.index("Messages:") < second.index("Slice: ask")
    words = [set(request.messages[0].content.lower().split()) for request in (asked, again)]
    assert "accept" in words[0] - words[1]


@pytest.mark.parametrize("n_fresh", [0, 1])
def test_without_fresh_candidates_it_is_asked_among_the_others(n_fresh: int) -> None:
    for text, is_accepted in (("ask", True), ("late", False)):
        found, _ = audit(text, finds_strangers, n_fresh=n_fresh)
        assert found.verdicts[0].is_accepted is is_accepted
        assert controls_of(found.controls).n_positive == n_fresh * len(found.verdicts)


def test_an_object_is_read_where_one_is_asked_for() -> None:
    found, rounds = audit("ask", lambda shown: f'{{"misplaced": "{finds_strangers(shown)}"}}', has_schema=True)
    assert [verdict.is_accepted for verdict in found.verdicts] == [True]
    assert '"misplaced"' in rounds[0][0].answer_schema


def test_without_another_label_the_controls_are_off_every_topic_and_a_draft_too_long_is_not_asked_about() -> None:
    lone = dataclasses.replace(ONE, negatives=())
    found, rounds = hold(audit_slice(question_of(lone), lone, drafts_of(["ask"])[0], random.Random(1)), finds_strangers)
    assert sum(one.text in OFF_TOPIC for one in shown_in(rounds[0][0]).values()) == 2
    assert found.verdicts[0].is_accepted
    long = drafts_of(["x" * (MAX_BATCH_CHARS + 1)])[0]
    assert hold(audit_slice(question_of(ONE), ONE, long, random.Random(1)), finds_strangers)[0] == Verification(
        verdicts=(), cost=Cost()
    )
