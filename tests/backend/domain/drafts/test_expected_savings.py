"""How many drafts to show: the expected saving is that of the beta-binomial, summed up by hand."""

import math
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import betabinom

from backend.domain.drafts.expected_savings import PLAN_CORRELATION, SourceOffer, expected_nets

STRENGTH = 1 / PLAN_CORRELATION - 1


def offer(acceptance: float, n: int, *, verify: float = 2.0, n_seen: int = 0, n_accepted: int = 0) -> SourceOffer:
    return SourceOffer(acceptance=acceptance, n_seen=n_seen, n_accepted=n_accepted, verify_microusd=(verify,) * n)


def nets(*sources: SourceOffer, n_wanted: int = 3, fresh: float = 10.0, overhead: float = 1.0) -> list[float]:
    return expected_nets(sources, n_wanted=n_wanted, fresh_microusd=fresh, overhead_microusd=overhead)


def test_certain_drafts_save_until_there_are_enough() -> None:
    assert nets(offer(1.0, 1), offer(1.0, 1), offer(1.0, 1), n_wanted=2) == pytest.approx([7, 15, 13])


sources = st.builds(
    lambda a, n, seen, share: offer(a, n, n_seen=seen, n_accepted=round(seen * share)),
    st.floats(0.01, 0.99),
    st.integers(1, 4),
    st.integers(0, 3),
    st.floats(0, 1),
)


@given(offers=st.lists(sources, min_size=1, max_size=3), n_wanted=st.integers(1, 6))
def test_the_net_of_showing_all_is_the_sum_over_every_outcome(offers: list[SourceOffer], n_wanted: int) -> None:
    saved = 0.0
    for outcome in product(*(range(len(o.verify_microusd) + 1) for o in offers)):
        chance = math.prod(
            betabinom.pmf(
                k,
                len(o.verify_microusd),
                o.acceptance * STRENGTH + o.n_accepted,
                (1 - o.acceptance) * STRENGTH + o.n_seen - o.n_accepted,
            )
            for k, o in zip(outcome, offers, strict=True)
        )
        saved += chance * min(sum(outcome), n_wanted) * 10.0
    n = sum(len(o.verify_microusd) for o in offers)
    found = nets(*offers, n_wanted=n_wanted)
    assert len(found) == n
    assert found[-1] == pytest.approx(saved - 1.0 - 2.0 * n, abs=1e-9)


@given(offers=st.lists(sources, min_size=1, max_size=4))
def test_each_further_draft_of_a_source_adds_no_more_than_the_one_before(offers: list[SourceOffer]) -> None:
    found = nets(*offers)
    at = 0
    for each in offers:
        run = found[at : at + len(each.verify_microusd)]
        steps = [b - a for a, b in pairwise(run)]
        assert all(later <= earlier + 1e-9 for earlier, later in pairwise(steps))
        at += len(each.verify_microusd)


def test_nothing_to_show_has_no_net() -> None:
    assert nets() == []
