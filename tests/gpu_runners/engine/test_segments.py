"""How ragged rows are laid out for attention."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from gpu_runners.engine.segments import CALL_TOKENS, Segment, padded_places, segments

COUNTS = st.lists(st.integers(1, 20), min_size=1, max_size=40)
CPU = torch.device("cpu")


def laid_out(starts: list[int], counts: list[int], *, begin: int = 0) -> list[Segment]:
    positions = [start + i for start, count in zip(starts, counts, strict=True) for i in range(count)]
    return segments(starts, counts, torch.tensor(positions), begin=begin)


@given(counts=COUNTS, seed=st.integers(0, 99))
def test_every_token_has_one_place(counts: list[int], seed: int) -> None:
    starts = [(seed * i) % 17 for i in range(len(counts))]
    parts = laid_out(starts, counts, begin=seed)
    assert [part.first for part in parts] == [sum(one.n for one in parts[:i]) for i in range(len(parts))]
    assert parts[-1].first + parts[-1].n == len(counts)
    found, begin = [], seed
    for part in parts:
        assert part.begin == begin
        begin += part.n_tokens
        places = part.positions.flatten()
        found += (places if part.at is None else places[part.at]).tolist()
        assert part.longest == max(found[-part.n_tokens :]) + 1
    assert found == [start + i for start, count in zip(starts, counts, strict=True) for i in range(count)]


@given(counts=COUNTS)
def test_padding_is_bounded_by_what_calls_cost(counts: list[int]) -> None:
    parts = laid_out([0] * len(counts), counts)
    padding = sum(part.n * part.width - part.n_tokens for part in parts)
    assert padding <= CALL_TOKENS * (len(counts) - len(parts))


def test_a_step_without_drafts_is_one_call() -> None:
    (part,) = laid_out([4, 2, 9], [1, 1, 1])
    assert (part.width, part.at, part.longest) == (1, None, 10)
    assert padded_places([3, 3], 3, CPU) is None
