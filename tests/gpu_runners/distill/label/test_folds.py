"""Which pairs the folds of a calibration hold."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_runners.distill.label.dataset import Pair
from gpu_runners.distill.label.folds import ENOUGH_HELD, MOST_FOLDS, folds

PAIRS = st.lists(
    st.builds(Pair, text=st.text(max_size=6), label=st.integers(0, 3), weight=st.just(1.0)), min_size=1, max_size=60
)


def pair(i: int, label: int) -> Pair:
    return Pair(text=f"text {i}", label=label, weight=1.0)


@given(pairs=PAIRS, share=st.floats(0.01, 0.5), seed=st.integers(0, 2**40))
def test_a_fold_loses_nothing_and_keeps_every_label_in_training(pairs: list[Pair], share: float, seed: int) -> None:
    every = folds(pairs, share=share, seed=seed)
    assert len(every) <= MOST_FOLDS
    held = [int(i) for fold in every for i in fold.held]
    assert len(held) == len(set(held))
    for fold in every:
        assert sorted([*fold.trained, *fold.held]) == list(range(len(pairs)))
        assert {pairs[i].label for i in fold.trained} == {pair.label for pair in pairs}
        kept, out = ({(pairs[i].text, pairs[i].label) for i in side} for side in (fold.trained, fold.held))
        assert not kept & out


@given(pairs=PAIRS, seed=st.integers(0, 9))
def test_who_is_held_does_not_depend_on_the_order(pairs: list[Pair], seed: int) -> None:
    once, again = (
        [Counter(order[i] for i in fold.held) for fold in folds(order, share=0.3, seed=seed)]
        for order in (pairs, pairs[::-1])
    )
    assert once == again


def test_another_seed_holds_others() -> None:
    pairs = [pair(i, i % 2) for i in range(40)]
    one, two = (folds(pairs, share=0.33, seed=seed)[0].held for seed in (1, 2))
    assert not np.array_equal(one, two)


@pytest.mark.parametrize(
    ("n", "share", "sizes"), [(60, 0.33, [20, 20, 20]), (60, 0.15, [10, 10, 8]), (600, 0.33, [200])]
)
def test_folds_are_added_until_enough_is_held(n: int, share: float, sizes: list[int]) -> None:
    found = [len(fold.held) for fold in folds([pair(i, i % 2) for i in range(n)], share=share, seed=7)]
    assert found == sizes
    assert len(found) == MOST_FOLDS or sum(found) >= ENOUGH_HELD


def test_the_two_texts_of_a_label_are_held_one_at_a_time() -> None:
    pairs = [pair(i, 0) for i in range(9)] + [pair(i, 1) for i in range(2)]
    held = [{i for i in fold.held if i >= 9} for fold in folds(pairs, share=0.33, seed=7)]
    assert sorted(map(len, held)) == [0, 1, 1]


def test_the_only_text_of_a_label_is_never_held_and_no_share_means_no_fold() -> None:
    rare = [pair(0, 1)] + [Pair(text="again", label=2, weight=1.0)] * 9
    pairs = [pair(i, 0) for i in range(9)] + rare
    every = folds(pairs, share=0.33, seed=7)
    assert {pairs[i].label for fold in every for i in fold.held} == {0}
    assert folds(rare, share=0.33, seed=7) == []
    assert folds(pairs, share=0.0, seed=7) == []
