"""One question about the drafts of a whole compile: what an answer comes to, what is void, and what it costs."""

import random
from collections import Counter
from uuid import UUID

import pytest

from backend.domain.drafts.judge_controls import ControlCounts, controls_of, exact_interval
from backend.domain.drafts.vocabulary import Certificate, Cost, VerdictKind, Verification
from tests.workers.teachers.judges.numbered_judges import (
    COST,
    NAMES,
    NoisyJudge,
    Shown,
    accepted,
    accepts_all,
    counted,
    drafts_of,
    hold,
    mixed,
    question_of,
    shown_in,
    slice_of,
    truth,
    truthful,
)
from tests.workers.teachers.prompts.malformed_numbers import MALFORMED
from workers.teachers.judges.compile_judge import judge_compile, shares_of
from workers.teachers.judges.compile_requests import Plants, plant_controls
from workers.teachers.prompts.number_ranges import as_ranges
from workers.teachers.protocol import Choice
from workers.teachers.verifiers.protocol import Answer


def kinds(found: dict[int, Verification]) -> Counter[VerdictKind]:
    return Counter(verdict.kind for one in found.values() for verdict in one.verdicts)


def test_each_draft_gets_its_verdict_in_its_slices_order_and_the_accepted_ones_a_certificate() -> None:
    slices = [slice_of(key, mixed(key, n)) for key, n in enumerate((20, 0, 3, 14, 9))]
    found, rounds = hold(judge_compile(question_of(*slices), random.Random(1)), truthful)
    assert [len(requests) for requests in rounds] == [1]
    assert accepted(found) == truth(20, 0, 3, 14, 9)
    assert 1 not in found
    for key, one in found.items():
        assert not one.is_void
        for draft, verdict in zip(slices[key].drafts, one.verdicts, strict=True):
            assert verdict.draft_id == draft.draft_id
            assert verdict.kind is VerdictKind.VERDICT
            assert verdict.text == (draft.text if verdict.is_accepted else "")
            assert verdict.certificate is (Certificate.JUDGED if verdict.is_accepted else None)
            assert verdict.kept_tokens == verdict.n_tokens == (4 if verdict.is_accepted else 0)
        assert dict(one.kept_tokens) == {Certificate.JUDGED: 4 * sum(v.is_accepted for v in one.verdicts)}


def test_a_refused_fresh_candidate_is_counted_and_voids_nothing() -> None:
    def judge(shown: dict[int, Shown]) -> str:
        return as_ranges(n for n, one in shown.items() if one.belongs and "fresh" not in one.text)

    found, rounds = hold(judge_compile(question_of(slice_of(0, ["ask"])), random.Random(1)), judge)
    assert controls_of(found[0].controls) == ControlCounts(n_negative=1, n_positive=1)
    assert (accepted(found), len(rounds)) == ({0: [True]}, 1)


def test_a_chunk_that_accepts_its_control_is_asked_again_alone_with_others() -> None:
    slices = [slice_of(key, [f"{NAMES[key]} {i}" for i in range(24)]) for key in range(4)]
    asked: list[int] = []

    def judge(shown: dict[int, Shown]) -> str:
        asked.append(len(shown))
        fooled = {n for n, one in shown.items() if one.slice_name == NAMES[2]} if len(asked) == 1 else set()
        return as_ranges(fooled | {n for n, one in shown.items() if one.belongs})

    found, rounds = hold(judge_compile(question_of(*slices), random.Random(3)), judge)
    assert [len(requests) for requests in rounds] == [1, 1]
    assert asked == [96 + 4 + 1, 24 + 2 + 1]
    assert {one.slice_name for one in shown_in(rounds[1][0]).values()} == {NAMES[2]}
    assert kinds(found) == {VerdictKind.VERDICT: 96}
    assert controls_of(found[2].controls).n_negative_accepted == 1
    used = [
        one.text for r in (rounds[0][0], rounds[1][0]) for one in shown_in(r).values() if one.slice_name == NAMES[2]
    ]
    negatives = [text for text in used if "negative" in text]
    assert len(negatives) == len(set(negatives)) == 3


@pytest.mark.parametrize("answer", [*MALFORMED[::7], "1-102", "Here you go: 1-5"])
def test_an_unreadable_answer_voids_the_request_which_is_asked_again_in_four_parts(answer: str) -> None:
    slices = [slice_of(key, mixed(key, 24)) for key in range(4)]
    sizes: list[int] = []

    def judge(shown: dict[int, Shown]) -> str:
        sizes.append(sum("fresh" not in one.text and "negative" not in one.text for one in shown.values()))
        return answer if len(sizes) == 1 else truthful(shown)

    found, rounds = hold(judge_compile(question_of(*slices), random.Random(3)), judge)
    assert [len(requests) for requests in rounds] == [1, 4]
    assert sizes == [96, 24, 24, 24, 24]
    assert accepted(found) == truth(24, 24, 24, 24)


def test_a_request_that_accepts_half_of_its_controls_counts_for_nothing() -> None:
    slices = [slice_of(key, [f"{NAMES[key]} {i}" for i in range(20)]) for key in range(4)]

    def judge(n_fooled: int, shown: dict[int, Shown]) -> str:
        fooled = {n for n, one in shown.items() if one.slice_name in NAMES[:n_fooled]} if len(shown) > 60 else set()
        return as_ranges(fooled | {n for n, one in shown.items() if one.belongs})

    for n_fooled, n_again in ((1, 1), (2, 4), (4, 4)):
        found, rounds = hold(
            judge_compile(question_of(*slices), random.Random(3)), lambda shown, n=n_fooled: judge(n, shown)
        )
        assert [len(requests) for requests in rounds] == [1, n_again]
        assert kinds(found) == {VerdictKind.VERDICT: 80}
        assert counted(found).n_negative_accepted == n_fooled


def test_a_judge_that_accepts_all_accepts_nothing_and_one_that_refuses_all_refuses_all() -> None:
    slices = [slice_of(key, mixed(key, 20)) for key in range(5)]
    found, rounds = hold(judge_compile(question_of(*slices), random.Random(4)), accepts_all)
    assert kinds(found) == {VerdictKind.VOID: 100}
    assert all(one.is_void and not any(v.is_accepted or v.text for v in one.verdicts) for one in found.values())
    assert len(rounds) == 2
    counts = counted(found)
    assert counts.n_negative == counts.n_negative_accepted > 10
    found, rounds = hold(judge_compile(question_of(*slices), random.Random(4)), lambda shown: "none")
    assert kinds(found) == {VerdictKind.VERDICT: 100}
    assert not any(v.is_accepted for one in found.values() for v in one.verdicts)
    assert (len(rounds), counted(found).n_negative_accepted) == (1, 0)


def test_an_answer_that_was_cut_or_has_no_choice_is_void() -> None:
    for choices in ((), (Choice(text="1", finish_reason="length"),)):
        conversation = judge_compile(question_of(slice_of(0, ["ask"])), random.Random(4))
        next(conversation)
        assert len(conversation.send([Answer(choices=choices, cost=COST)])) == 1
        with pytest.raises(StopIteration) as ended:
            conversation.send([Answer(choices=choices, cost=COST)])
        found = ended.value.value
        assert found[0].is_void
        assert found[0].controls == ()
        assert [verdict.cost_microusd for verdict in found[0].verdicts] == [2 * COST.amount_microusd]


@pytest.mark.parametrize("sizes", [(1,), (2, 0, 3), (30, 7, 1, 90), (17, 17, 17, 17, 17), (0, 0, 0)])
def test_costs_fall_on_the_drafts_to_the_last_microusd_and_waste_is_bounded(sizes: tuple[int, ...]) -> None:
    texts = [[f"{'poison' if i % 19 == 3 else NAMES[key]} {i}" for i in range(n)] for key, n in enumerate(sizes)]
    question = question_of(*(slice_of(key, each) for key, each in enumerate(texts)))
    found, rounds = hold(judge_compile(question, random.Random(1)), NoisyJudge(random.Random(2), flip=0.5))
    n_requests = sum(map(len, rounds))
    paid = sum((one.cost for one in found.values()), Cost())
    assert paid == sum([COST] * n_requests, Cost())
    for one in found.values():
        assert sum(verdict.cost_microusd for verdict in one.verdicts) == one.cost.amount_microusd
        assert one.audit_cost == Cost()
    first = len(rounds[0]) if rounds else 0
    assert first <= 2
    assert n_requests <= 5 * first


def test_shares_of_a_cost_are_whole_and_sum_to_it() -> None:
    cost = Cost(input_tokens=10, cached_tokens=3, output_tokens=1, n_requests=1, amount_microusd=100, price_version="v")
    for n in (1, 3, 7, 96):
        shares = shares_of(cost, n)
        assert sum(shares, Cost()) == cost
        assert max(s.amount_microusd for s in shares) - min(s.amount_microusd for s in shares) <= 1


def test_a_control_names_its_draft_and_its_slice() -> None:
    found, _ = hold(judge_compile(question_of(slice_of(0, ["ask"]), slice_of(1, ["late"])), random.Random(1)), truthful)
    negatives = [c for one in found.values() for c in one.controls if c.kind is VerdictKind.NEGATIVE]
    assert len(negatives) == 1
    assert negatives[0].draft_id.int in range(90_000, 90_012)
    assert all(isinstance(c.draft_id, UUID) for c in negatives)
    assert drafts_of(["ask"])[0].draft_id == found[0].verdicts[0].draft_id


@pytest.mark.parametrize("n_named", [1, 12, 23])
def test_an_answer_that_accepts_numbers_blindly_is_void_as_often_as_it_names_the_control(n_named: int) -> None:
    """Whoever forges it knows neither which number is the control's nor its place."""
    rng, n_trials, n_void = random.Random(n_named), 500, 0
    question = question_of(slice_of(0, [f"ask {i}" for i in range(23)], n_fresh=0))
    plants = Plants(question.slices, rng)
    for _ in range(n_trials):
        request = plant_controls(question, [(0, i) for i in range(23)], 24, plants, rng)
        ranges = as_ranges(rng.sample(range(1, 25), n_named))
        reading = request.read(Answer(choices=(Choice(text=ranges),), cost=COST))
        assert len(reading.controls) == 1
        n_void += bool(reading.void)
        assert sum(reading.accepted.values()) == (0 if reading.void else n_named)
    low, high = exact_interval(n_void, n_trials, 0.999)
    assert low <= n_named / 24 <= high
