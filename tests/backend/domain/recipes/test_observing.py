"""Observation: alignment by tokens, agreement counted after the same token."""

import time

from hypothesis import given
from hypothesis import strategies as st

from backend.domain.recipes.observing import Observed, agreed_runs, observe

tokens = st.lists(st.integers(1, 4), max_size=10)


def test_a_token_agrees_where_a_sample_has_it_after_the_same_token() -> None:
    seen = observe([5, 6, 7, 8, 0], [[5, 6, 7, 8, 0], [5, 9, 9, 7, 8, 0]])
    assert seen == Observed(tokens=(5, 6, 7, 8, 0), agreed=(2, 1, 1, 2, 2), n_samples=2)
    assert agreed_runs(seen) == [(0, 1), (3, 5)]


def test_an_answer_without_samples_is_its_own_sample() -> None:
    assert observe([5, 0], []) == Observed(tokens=(5, 0), agreed=(1, 1), n_samples=1)
    assert agreed_runs(observe([5, 0], [])) == [(0, 2)]
    assert agreed_runs(observe([], [[]])) == []


def test_a_sample_that_shares_nothing_agrees_nowhere() -> None:
    assert observe([1, 2, 3], [[4, 5, 6]]).agreed == (0, 0, 0)
    assert observe([1, 2, 3], [[]]).agreed == (0, 0, 0)


@given(tokens, st.integers(1, 4))
def test_samples_equal_to_the_answer_agree_everywhere(output: list[int], n: int) -> None:
    seen = observe(output, [output] * n)
    assert seen.agreed == (n,) * len(output)
    assert agreed_runs(seen) == ([(0, len(output))] if output else [])


@given(tokens, st.lists(tokens, max_size=4))
def test_the_order_of_samples_does_not_matter(output: list[int], samples: list[list[int]]) -> None:
    assert observe(output, samples) == observe(output, samples[::-1])


@given(tokens, tokens)
def test_an_agreeing_token_stands_in_the_sample_after_the_same_token(output: list[int], sample: list[int]) -> None:
    pairs = set(zip([-1, *sample], sample, strict=False))
    head = next((i for i, (a, b) in enumerate(zip(output, sample, strict=False)) if a != b), None)
    agreed = observe(output, [sample]).agreed
    for i, n in enumerate(agreed):
        if n:
            assert (output[i - 1] if i else -1, output[i]) in pairs
    assert all(agreed[: min(len(output), len(sample)) if head is None else head])


@given(tokens, st.lists(tokens, min_size=1, max_size=4))
def test_runs_are_maximal_and_hold_exactly_what_all_samples_agree_on(
    output: list[int], samples: list[list[int]]
) -> None:
    seen = observe(output, samples)
    covered = {i for begin, end in agreed_runs(seen) for i in range(begin, end)}
    assert covered == {i for i, n in enumerate(seen.agreed) if n == seen.n_samples}
    ends = [end for _, end in agreed_runs(seen)]
    assert all(end not in covered for end in ends)


def test_long_samples_that_have_little_in_common_cost_little() -> None:
    begin = time.perf_counter()
    seen = observe([1, 2] * 4000, [[2, 1, 3] * 3000])
    assert time.perf_counter() - begin < 2
    assert seen.n_samples == 1
