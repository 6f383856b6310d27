"""Held-out gold is held out: by share, by group, by label, and against everything that trains."""

import math
import random
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.spec.gold import drop_leaks, leakage, n_heldout_at_least, normalise, split_gold

SALT = b"salt"


@dataclass(frozen=True)
class Pair:
    input: str
    output: str
    group: str | None = None
    split: str | None = None


pairs = st.lists(
    st.builds(
        Pair,
        input=st.integers(0, 40).map(lambda i: f"Text {i}!"),
        output=st.sampled_from("abcd"),
        group=st.none() | st.integers(0, 8).map(str),
    ),
    max_size=60,
)
singles = st.lists(
    st.builds(Pair, input=st.integers(0, 99).map("text {}".format), output=st.sampled_from("abc")), max_size=60
)
shares = st.sampled_from([0.2, 0.25, 0.3, 0.5, 0.8, 1.0])


@given(examples=pairs, holdout=shares)
def test_the_share_is_met_and_nothing_stands_on_both_sides(examples: list[Pair], holdout: float) -> None:
    split = split_gold(examples, salt=SALT, holdout=holdout)
    both = split.train + split.heldout
    assert len(both) + split.n_duplicates == len(examples)
    assert {(normalise(e.input), e.output) for e in both} == {(normalise(e.input), e.output) for e in examples}
    assert (
        len(split.heldout) >= math.ceil(round(holdout * len(both), 9)) == n_heldout_at_least(examples, holdout=holdout)
    )
    assert not {normalise(e.input) for e in split.train} & {normalise(e.input) for e in split.heldout}
    groups = [{e.group for e in side if e.group is not None} for side in (split.train, split.heldout)]
    assert not groups[0] & groups[1]


@given(examples=pairs, holdout=shares, seed=st.integers(0, 5))
def test_the_split_does_not_depend_on_the_order_of_the_examples(
    examples: list[Pair], holdout: float, seed: int
) -> None:
    shuffled = examples[:]
    random.Random(seed).shuffle(shuffled)
    assert split_gold(examples, salt=SALT, holdout=holdout) == split_gold(shuffled, salt=SALT, holdout=holdout)


@given(examples=singles, holdout=st.sampled_from([0.2, 0.3, 0.5]))
def test_a_label_with_two_groups_is_on_both_sides(examples: list[Pair], holdout: float) -> None:
    answers: defaultdict[str, set[str]] = defaultdict(set)
    for example in examples:
        answers[normalise(example.input)].add(example.output)
    plain = [e for e in examples if len(answers[normalise(e.input)]) == 1]  # groups that carry one label
    split = split_gold(plain, salt=SALT, holdout=holdout)
    for label in {e.output for e in plain}:
        n_groups = len({normalise(e.input) for e in plain if e.output == label})
        if n_groups >= 2:
            assert any(e.output == label for e in split.heldout)
            assert any(e.output == label for e in split.train)


def test_groups_that_mix_labels_still_put_every_label_in_the_evaluation() -> None:
    examples = [Pair(f"{g} {label} {i}", label, g) for g in ("g1", "g2", "g3") for label in "ab" for i in range(3)]
    split = split_gold(examples, salt=SALT, holdout=0.2)
    assert {e.output for e in split.heldout} == {e.output for e in split.train} == {"a", "b"}


named_pairs = st.lists(
    st.builds(
        Pair,
        input=st.integers(0, 30).map(lambda i: f"Text {i}!"),
        output=st.sampled_from("abcd"),
        group=st.none() | st.integers(0, 20).map(str),
        split=st.sampled_from([None, None, "train", "heldout"]),
    ),
    max_size=60,
)


def identities(examples: Iterable[Pair]) -> set[tuple[str, str]]:
    return {(normalise(e.input), e.output) for e in examples}


@given(examples=named_pairs, holdout=shares, seed=st.integers(0, 5))
def test_what_is_held_out_by_name_is_held_out_and_nothing_else(examples: list[Pair], holdout: float, seed: int) -> None:
    split = split_gold(examples, salt=SALT, holdout=holdout)
    named = [e for e in examples if e.split == "heldout"]
    assert split.is_named == bool(named)
    if named:
        assert identities(split.heldout) == identities(named)
        assert all(e.split == "heldout" for e in split.heldout)
        assert len(split.heldout) == n_heldout_at_least(examples, holdout=holdout)
    assert not {normalise(e.input) for e in split.train} & {normalise(e.input) for e in split.heldout}
    assert not {e.group for e in split.train} & {e.group for e in split.heldout} - {None}
    assert len(split.train) + len(split.heldout) + split.n_duplicates + split.n_left_out == len(examples)
    shuffled = random.Random(seed).sample(examples, len(examples))
    assert split_gold(shuffled, salt=SALT, holdout=holdout) == split


@given(examples=named_pairs, holdout=shares, salt=st.sampled_from([b"1", b"2"]))
def test_where_examples_name_training_alone_the_share_is_of_the_others(
    examples: list[Pair], holdout: float, salt: bytes
) -> None:
    examples = [replace(e, split=None if e.split == "heldout" else e.split) for e in examples]
    split = split_gold(examples, salt=salt, holdout=holdout)
    assert identities(e for e in examples if e.split == "train") <= identities(split.train)
    assert len(split.heldout) >= n_heldout_at_least(examples, holdout=holdout)
    assert not split.n_left_out


def test_a_label_that_trains_elsewhere_may_lose_its_one_free_example_to_the_evaluation() -> None:
    free = [Pair("one a", "a"), *(Pair(f"b {i}", "b") for i in range(9))]
    assert not any(e.output == "a" for e in split_gold(free, salt=SALT, holdout=0.3).heldout)
    more = [*free, Pair("another a", "a", split="train")]
    assert any(e.output == "a" for e in split_gold(more, salt=SALT, holdout=0.3).heldout)


def test_beside_a_text_that_is_held_out_by_name_its_copies_do_not_train() -> None:
    examples = [
        Pair("Where is it?", "track", split="heldout"),
        Pair("where is it", "track", split="train"),
        Pair("WHERE IS IT", "refund", split="train"),
        Pair("one", "refund", "ticket", split="heldout"),
        Pair("two", "refund", "ticket"),
        Pair("three", "refund"),
    ]
    split = split_gold(examples, salt=SALT, holdout=0.3)
    assert {e.input for e in split.heldout} == {"Where is it?", "one"}
    assert [e.input for e in split.train] == ["three"]
    assert (split.n_left_out, split.n_duplicates) == (3, 0)


def test_a_copy_of_a_text_in_another_group_ties_the_groups_together() -> None:
    for salt in range(20):
        examples = [Pair("same", "a", "g1"), Pair("Same.", "a", "g2"), Pair("one", "a", "g1"), Pair("two", "a", "g2")]
        split = split_gold(examples + [Pair(f"x{i}", "a") for i in range(8)], salt=bytes([salt]), holdout=0.3)
        sides = {e.input: side for side, part in (("t", split.train), ("h", split.heldout)) for e in part}
        assert sides["one"] == sides["two"]
        assert split.n_duplicates == 1


def test_another_salt_holds_out_other_examples() -> None:
    examples = [Pair(f"text {i}", "ab"[i % 2]) for i in range(100)]
    one, two = (split_gold(examples, salt=salt, holdout=0.3) for salt in (b"1", b"2"))
    assert set(one.heldout) != set(two.heldout)
    assert len(one.heldout) == 30


def test_holding_out_everything_leaves_nothing_to_train_on() -> None:
    examples = [Pair(f"text {i}", "ab"[i % 2]) for i in range(10)]
    split = split_gold(examples, salt=SALT, holdout=1.0)
    assert (len(split.train), len(split.heldout)) == (0, 10)


@pytest.mark.parametrize(
    ("one", "other"),
    [("  Where is my   REFUND?!", "where is my refund"), ("ﬁne", "Fine"), ("Straße", "STRASSE"), ("«ok»", "ok")],
)
def test_texts_that_differ_in_spelling_only_are_one_text(one: str, other: str) -> None:
    assert normalise(one) == normalise(other)


def test_a_text_of_punctuation_only_keeps_it() -> None:
    assert normalise("?!") == "?!"
    assert normalise("किताब") == "किताब"


def jaccard(one: str, other: str) -> float:
    a, b = ({t[i : i + 5] for i in range(max(1, len(t) - 4))} for t in (normalise(one), normalise(other)))
    return len(a & b) / len(a | b)


words = st.lists(st.sampled_from(["where", "is", "my", "money", "back", "card", "now"]), min_size=1, max_size=12).map(
    " ".join
)


@given(train=st.lists(words, max_size=15), heldout=st.lists(words, max_size=15))
def test_leakage_finds_every_pair_that_comparing_all_pairs_finds(train: list[str], heldout: list[str]) -> None:
    report = leakage(train, heldout)
    exact = {i for i, t in enumerate(train) if normalise(t) in {normalise(h) for h in heldout}}
    near = {i for i, t in enumerate(train) if any(jaccard(t, h) >= 0.8 for h in heldout)} - exact
    assert {leak.train for leak in report.exact} == exact
    assert {leak.train for leak in report.near} == near
    for leak in report.near:
        best = max(jaccard(train[leak.train], h) for h in heldout)
        assert jaccard(train[leak.train], heldout[leak.heldout]) == pytest.approx(best)
        assert leak.similarity_ppm == int(best * 1_000_000 + 1e-6)
    kept = drop_leaks(train, heldout)
    assert set(kept) == set(range(len(train))) - exact - near
    assert list(kept) == sorted(kept)


def test_the_report_counts_both_sides() -> None:
    report = leakage(["Where is my card?", "where is my card", "something else"], ["where is my card", "unrelated"])
    assert report.to_json() == {"n_train": 3, "n_heldout": 2, "n_exact": 2, "n_near": 0, "n_heldout_touched": 1}


@given(st.integers(20, 120), st.integers(1, 6), st.sampled_from([0.2, 0.3, 0.5]))
def test_answers_that_are_not_labels_are_held_out_by_the_share_alone(n: int, n_answers: int, holdout: float) -> None:
    """Each answer stands a few times; as labels, every one of them would be held out at least once."""
    examples = [Pair(f"input {i}", f"answer {i // n_answers}") for i in range(n)]
    split = split_gold(examples, salt=SALT, holdout=holdout, is_stratified=False)
    assert len(split.heldout) == math.ceil(round(holdout * n, 9))


def test_ten_thousand_different_answers_are_split_in_seconds() -> None:
    examples = [Pair(f"input {i}", f"answer {i}") for i in range(10_000)]
    started = time.process_time()
    split = split_gold(examples, salt=SALT, holdout=0.3, is_stratified=False)
    assert time.process_time() - started < 5
    assert len(split.heldout) == 3_000


def test_the_search_for_near_leaks_ends_where_it_is_told_to_and_says_so():
    train = [f"the same words in every text, number {n}" for n in range(40)]
    held = [f"the same words in every text, item {n}" for n in range(40)] + ["the same words in every text, number 3"]
    whole, bounded = leakage(train, held), leakage(train, held, most_pairs=1)
    assert not whole.is_partial
    assert bounded.is_partial
    assert bounded.exact == whole.exact
    assert len(bounded.near) < len(whole.near)
