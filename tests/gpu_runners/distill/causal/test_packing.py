"""Steps and layouts, against what must hold of any of them."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_runners.distill.causal.packing import first_fit_decreasing, lay_out, plan_epoch, share_of

lengths_ = st.lists(st.integers(1, 90), min_size=1, max_size=120)
batchings = st.sampled_from(["shared_prefix", "packed", "bucketed", "padded"])


@given(lengths_, st.integers(1, 300))
def test_first_fit_decreasing_is_what_a_plain_loop_gives(lengths: list[int], capacity: int) -> None:
    bins: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        for one in bins:
            if sum(lengths[j] for j in one) + lengths[i] <= capacity:
                one.append(i)
                break
        else:
            bins.append([i])
    assert first_fit_decreasing(lengths, capacity=capacity) == bins


@given(lengths_, st.integers(1, 300), st.integers(-5, 2**40), st.integers(0, 50))
def test_an_epoch_holds_every_example_once_and_no_step_overflows(
    lengths: list[int], capacity: int, seed: int, epoch: int
) -> None:
    steps = plan_epoch(lengths, capacity=capacity, seed=seed, epoch=epoch)
    assert sorted(itertools.chain(*steps)) == list(range(len(lengths)))
    assert all(len(step) == 1 or sum(lengths[i] for i in step) <= capacity for step in steps)
    assert steps == plan_epoch(lengths, capacity=capacity, seed=seed, epoch=epoch)
    assert len(steps) == len(plan_epoch(lengths, capacity=capacity, seed=seed, epoch=epoch + 1))


def test_epochs_differ_and_steps_are_of_one_size_and_mixed_lengths() -> None:
    lengths = np.random.default_rng(1).integers(5, 60, size=400).tolist()
    one, two = (plan_epoch(lengths, capacity=512, seed=7, epoch=epoch) for epoch in (0, 1))
    assert sorted(map(sorted, one)) != sorted(map(sorted, two))
    sums = [sum(lengths[i] for i in step) for step in one]
    assert min(sums) > 0.9 * max(sums)
    means = [np.mean([lengths[i] for i in step]) for step in one]
    assert max(means) < 1.5 * min(means)
    assert len(one) <= math.ceil(sum(lengths) / 512) + 1


@given(lengths_, batchings, st.integers(1, 200), st.integers(1, 2))
def test_a_layout_holds_the_step_and_packs_only_where_it_should(
    lengths: list[int], batching: str, row_tokens: int, parts: int
) -> None:
    step = list(range(0, len(lengths), 2))
    batches = lay_out(step, lengths, batching=batching, capacity=200, row_tokens=row_tokens, parts=parts)
    rows = list(itertools.chain(*batches))
    assert sorted(itertools.chain(*rows)) == step
    if batching in ("bucketed", "padded"):
        assert all(len(row) == 1 for row in rows)
    else:
        assert all(len(row) == 1 or sum(lengths[i] for i in row) <= max(row_tokens, max(lengths)) for row in rows)


def test_kernels_of_variable_length_get_one_row_a_batch() -> None:
    lengths = [50] * 10
    whole = lay_out(range(10), lengths, batching="packed", capacity=512, row_tokens=512)
    assert [len(rows) for rows in whole] == [1]
    halves = lay_out(range(10), lengths, batching="packed", capacity=512, row_tokens=512, parts=2)
    assert [len(rows) for rows in halves] == [1, 1]
    assert max(sum(lengths[i] for i in rows[0]) for rows in halves) <= 256


def test_buckets_waste_little_of_a_step_that_padding_wastes_much_of() -> None:
    lengths = np.random.default_rng(2).geometric(1 / 17, size=200).clip(3, 98).tolist()
    step = list(range(200))

    def positions(batching: str) -> int:
        batches = lay_out(step, lengths, batching=batching, capacity=8192, row_tokens=256)
        return sum(len(rows) * max(sum(lengths[i] for i in row) for row in rows) for rows in batches)

    assert positions("bucketed") < 1.35 * sum(lengths)
    assert positions("packed") < 1.1 * sum(lengths)
    assert positions("padded") > 3 * sum(lengths)


@given(lengths_, st.integers(1, 5))
def test_processes_share_a_step_without_overlap(lengths: list[int], world: int) -> None:
    step = list(range(len(lengths)))
    parts = [share_of(step, lengths, rank=rank, world=world) for rank in range(world)]
    assert sorted(itertools.chain(*parts)) == step
    sums = [sum(lengths[i] for i in part) for part in parts]
    assert max(sums) - min(sums) <= max(lengths)


@pytest.mark.parametrize("batching", ["packed", "bucketed", "padded"])
def test_nothing_gives_nothing(batching: str) -> None:
    assert lay_out([], [], batching=batching, capacity=8, row_tokens=8) == []
