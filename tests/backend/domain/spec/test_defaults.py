"""N and K of the slices, by their shares."""

from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.errors import InvalidSpec
from backend.domain.planning.estimates import estimate
from backend.domain.spec.defaults import default_k_select, slice_sizes
from backend.domain.spec.parsing import parse_spec
from tests.compile_factories import small_spec

EXAMPLES = Path(__file__).resolve().parents[4] / "examples"
JSON = {"type": "json", "schema": {"type": "object"}}
TEXT = {"type": "text", "accuracy": "checks", "checks": [{"kind": "length", "max_chars": 80}]}


@st.composite
def cut_in_parts(draw: st.DrawFn) -> list[float]:
    """Shares in hundredths that sum to 1."""
    cuts = sorted(draw(st.sets(st.integers(1, 99), max_size=7)))
    return [(high - low) / 100 for low, high in zip([0, *cuts], [*cuts, 100], strict=True)]


def sized(shares: list[float], n: int, k: int | None = None, **changes: Any) -> list[tuple[int, int]]:
    slices = [{"name": f"slice {i}", "share": share} for i, share in enumerate(shares)]
    spec = parse_spec(small_spec(slices=slices, sampling={"n_candidates": n, "k_select": k}, **changes))
    return [(size.n, size.k) for size in slice_sizes(spec)]


@given(cut_in_parts(), st.integers(1, 60), st.data())
def test_shares_set_n_and_k_of_every_slice(shares: list[float], n: int, data: st.DataObject) -> None:
    k = data.draw(st.none() | st.integers(1, n))
    sizes = sized(shares, n, k)
    ns, ks = [own for own, _ in sizes], [own for _, own in sizes]
    assert sum(ns) == n * len(shares), "a slice of the mean share has N"
    assert sum(ks) == (default_k_select(n) if k is None else k) * len(shares)
    assert all(1 <= own_k <= own_n for own_n, own_k in sizes)
    wanted = [n * len(shares) * Fraction(str(share)) for share in shares]
    if min(wanted) >= 1:
        assert all(abs(own - want) < 1 for own, want in zip(ns, wanted, strict=True))
    by_share = sorted(zip(shares, sizes, strict=True))
    for (less, (n_less, k_less)), (more, (n_more, k_more)) in pairwise(by_share):
        assert less == more or (n_less <= n_more and k_less <= k_more)


def test_equal_shares_are_the_same_n_and_k_everywhere() -> None:
    assert sized([0.2] * 5, 48, 10) == [(48, 10)] * 5
    assert sized([0.33, 0.33, 0.34], 12) == [(12, 4)] * 3


def test_shares_count_for_labels_json_and_text_alike() -> None:
    shares, halves = [0.5, 0.3, 0.2], [(18, 6), (11, 4), (7, 2)]
    assert sized(shares, 12) == halves
    gold = [{"input": f"mail {i}", "output": "{}"} for i in range(80)]
    assert sized(shares, 12, output=JSON, examples={"inline": gold}) == halves
    assert sized(shares, 12, output=TEXT, examples={"inline": gold}) == halves


def test_without_slices_the_labels_shares_are_those_of_their_slices() -> None:
    labels = [{"name": "refund", "share": 0.75}, {"name": "other", "share": 0.25}]
    spec = parse_spec(small_spec(output={"type": "label", "labels": labels}, sampling={"n_candidates": 12}))
    assert [(size.part.name, size.n, size.k) for size in slice_sizes(spec)] == [("refund", 18, 6), ("other", 6, 2)]


def test_the_estimate_buys_as_many_candidates_whatever_their_shares() -> None:
    def assumed(shares: list[float]) -> str:
        slices = [{"name": f"slice {i}", "share": share} for i, share in enumerate(shares)]
        return estimate(parse_spec(small_spec(slices=slices))).assumptions[0]

    assert assumed([0.5, 0.3, 0.2]) == assumed([0.34, 0.33, 0.33]) == "36 candidates in 3 slices, 0 captures, 12 picks"


def test_the_example_says_what_its_shares_come_to() -> None:
    text = (EXAMPLES / "inbox-shares.yaml").read_text()
    table = [line.split() for line in text.splitlines() if line.startswith("#   ") and line.endswith(" %")]
    shown = {name: (float(share), int(n), int(k)) for _, name, share, n, k, *_ in table}
    sizes = slice_sizes(parse_spec(yaml.safe_load(text)))
    assert shown == {size.part.name: (size.part.share, size.n, size.k) for size in sizes}
    assert sum(size.n for size in sizes) == 150


def test_a_slice_that_its_share_makes_too_large_is_refused() -> None:
    slices = [{"name": f"slice {i}", "share": share} for i, share in enumerate([0.9] + [0.1 / 29] * 29)]
    with pytest.raises(InvalidSpec, match=r'share of slice "slice 0" makes 27,000 of the 30,000 candidates its own'):
        parse_spec(small_spec(slices=slices, sampling={"n_candidates": 1000}))
