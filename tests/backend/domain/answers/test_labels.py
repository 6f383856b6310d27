"""Counting votes exactly, and balancing by dropping as little as possible."""

import itertools
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.answers.labels import LabeledPair, balance, vote
from backend.domain.errors import InvalidInput

answers = st.lists(st.sampled_from(["refund", "exchange", "other", "nonsense", None]), max_size=9)
ALLOWED = ("refund", "exchange", "other")


@given(answers, st.randoms())
def test_the_label_with_most_votes_wins_whatever_the_order(samples: list[str | None], random) -> None:
    result = vote(samples, ALLOWED)
    counts = Counter(s for s in samples if s in ALLOWED)
    leaders = [label for label, c in counts.items() if c == max(counts.values())]
    assert result.label == (leaders[0] if len(leaders) == 1 else None)
    assert (result.votes, result.asked) == (max(counts.values(), default=0), len(samples))
    assert dict(result.counts) == dict(counts)
    random.shuffle(samples)
    assert vote(samples, ALLOWED) == result


def test_a_tie_gives_no_label() -> None:
    tied = vote(["refund", "exchange", "refund", "exchange"], ALLOWED)
    assert (tied.label, tied.agreement) == (None, Fraction(1, 2))
    assert not tied.reaches(0.0)
    assert vote([], ALLOWED).label is None
    assert vote([], ALLOWED).agreement_ppm == 0


def test_answers_that_are_no_label_count_against_the_agreement() -> None:
    result = vote(["refund", "refund", None, "REFUND", "nonsense"], ALLOWED)
    assert (result.label, result.agreement, result.agreement_ppm) == ("refund", Fraction(2, 5), 400_000)


@pytest.mark.parametrize(("votes", "asked"), [(1, 10), (3, 10), (7, 10), (4, 5), (3, 5), (2, 3), (29, 100)])
def test_agreement_is_compared_exactly_at_the_threshold(votes: int, asked: int) -> None:
    # the float 0.8 is a little more than 4/5, and 0.29 * 100 is less than 29
    result = vote(["refund"] * votes + [None] * (asked - votes), ALLOWED)
    if Fraction(str(votes / asked)) == Fraction(votes, asked):
        assert result.reaches(votes / asked)
    assert not result.reaches(votes / asked + 0.001)


@st.composite
def labelled_pools(draw: st.DrawFn) -> tuple[list[LabeledPair], dict[str, float]]:
    names = ["a", "b", "c"][: draw(st.integers(1, 3))]
    weights = [draw(st.integers(0, 5)) for _ in names]
    weights[0] += 1
    counts = [draw(st.integers(0, 14)) for _ in names]
    votes = draw(st.lists(st.integers(1, 5), min_size=sum(counts), max_size=sum(counts)))
    labels = [name for name, n in zip(names, counts, strict=True) for _ in range(n)]
    pairs = [
        LabeledPair(key=f"{i:03}", label=label, agreement=Fraction(v, 5))
        for i, (label, v) in enumerate(zip(labels, votes, strict=True))
    ]
    return pairs, {name: w / sum(weights) for name, w in zip(names, weights, strict=True)}


def is_balanced(counts: tuple[int, ...], shares: list[float]) -> bool:
    total = sum(counts)
    return (
        all(
            abs(Fraction(c, total) - Fraction(round(s * 10**6), 10**6)) <= Fraction(5, 100)
            for c, s in zip(counts, shares, strict=True)
        )
        if total
        else True
    )


@given(labelled_pools())
def test_balance_keeps_as_many_pairs_as_any_balanced_choice_could(pool: tuple) -> None:
    pairs, shares = pool
    result = balance(pairs, shares, max_drop_share=1.0)
    available = Counter(p.label for p in pairs)
    names = sorted(shares)
    choices = itertools.product(*(range(available[name] + 1) for name in names))
    best = max(sum(c) for c in choices if is_balanced(c, [shares[name] for name in names]))
    kept = Counter(pairs[i].label for i in result.kept)
    assert len(result.kept) == best
    assert is_balanced(tuple(kept[name] for name in names), [shares[name] for name in names])
    assert result.within_tolerance
    assert result.would_drop == len(pairs) - best
    assert list(result.kept) == sorted(set(result.kept))


@given(labelled_pools(), st.randoms())
def test_within_a_label_the_most_agreed_upon_stay_whatever_the_order(pool: tuple, random) -> None:
    pairs, shares = pool
    result = balance(pairs, shares, max_drop_share=1.0)
    kept = {pairs[i].key for i in result.kept}
    for label in shares:
        ranked = sorted((p for p in pairs if p.label == label), key=lambda p: (-p.agreement, p.key))
        n = sum(p.key in kept for p in ranked)
        assert {p.key for p in ranked[:n]} == {p.key for p in ranked if p.key in kept}
    shuffled = random.sample(pairs, len(pairs))
    assert {shuffled[i].key for i in balance(shuffled, shares, max_drop_share=1.0).kept} == kept


@given(labelled_pools(), st.sampled_from([0.0, 0.2, 0.5]))
def test_when_balance_would_cost_too_much_everything_is_kept_and_what_is_missing_would_mend_it(
    pool: tuple, bound: float
) -> None:
    pairs, shares = pool
    result = balance(pairs, shares, max_drop_share=bound)
    assert result.within_tolerance == (result.would_drop <= bound * len(pairs))
    if result.within_tolerance:
        assert len(result.kept) == len(pairs) - result.would_drop
        assert all(skew.missing == 0 for skew in result.labels)
        return
    assert result.kept == tuple(range(len(pairs)))
    if any(shares[p.label] == 0 for p in pairs):
        return  # a label that should not be there at all is not mended by more of the others alone
    added = [LabeledPair(key=f"new-{s.label}-{i}", label=s.label) for s in result.labels for i in range(s.missing)]
    assert added
    assert balance([*pairs, *added], shares, max_drop_share=bound).would_drop == 0


def test_a_rare_label_leaves_the_data_and_reports_the_skew() -> None:
    pairs = [LabeledPair(key=str(i), label="no") for i in range(98)] + [LabeledPair(key="x", label="yes")] * 2
    result = balance(pairs, {"yes": 0.5, "no": 0.5})
    assert (len(result.kept), result.within_tolerance, result.would_drop) == (100, False, 96)
    yes = next(s for s in result.labels if s.label == "yes")
    assert (yes.available, yes.kept, yes.share_ppm, yes.target_ppm, yes.deviation_ppm) == (
        2,
        2,
        20_000,
        500_000,
        -480_000,
    )
    assert yes.missing == 79  # 81 of 179 is 45.3 %, 98 of 179 is 54.7 %
    assert result.to_json()["labels"][1]["deviation_ppm"] == -480_000


def test_shares_within_five_points_cost_nothing() -> None:
    pairs = [LabeledPair(key=str(i), label="yes" if i < 55 else "no") for i in range(100)]
    assert balance(pairs, {"yes": 0.5, "no": 0.5}).would_drop == 0
    assert balance([], {"yes": 0.5, "no": 0.5}).kept == ()


@pytest.mark.parametrize(
    "shares", [{}, {"yes": 0.4, "no": 0.4}, {"yes": 1.5, "no": -0.5}, {"yes": float("nan"), "no": 0.5}]
)
def test_shares_that_are_no_distribution_are_refused(shares: dict[str, float]) -> None:
    with pytest.raises(InvalidInput):
        balance([], shares)


def test_a_pair_whose_label_has_no_share_is_refused() -> None:
    with pytest.raises(InvalidInput, match="'maybe'") as refused:
        balance([LabeledPair(key="k", label="maybe")], {"yes": 1.0})
    assert refused.value.code == "unknown_label"
