import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.selection.lazy_greedy import best_bounds, lazy_greedy_picks
from backend.domain.selection.linkage.clustering import Floats, Ints


class WholeNumbers:
    """Gains that fall by whole numbers, so that ties are everywhere: pick j costs row i `losses[j, i]`."""

    def __init__(self, gains: Floats, losses: Floats) -> None:
        self.bounds, self._gains, self._losses = gains.copy(), gains, losses
        self._picks: list[int] = []

    def refresh(self, ids: Ints) -> None:
        self.bounds[ids] = (self._gains - self._losses[self._picks].sum(axis=0))[ids]
        self.bounds[self._picks] = -np.inf

    def open_panel(self, ids: Ints) -> Floats:
        self._ids, self._panel = ids, self.bounds[ids]
        return self._panel

    def take(self, at: int) -> None:
        self._picks.append(int(self._ids[at]))
        self._panel -= self._losses[self._picks[-1], self._ids]
        self._panel[at] = -np.inf

    def close_panel(self) -> None:
        self.bounds[self._ids] = self._panel


@given(st.integers(0, 2**32 - 1), st.integers(0, 24), st.integers(0, 26), st.integers(1, 6), st.integers(1, 4))
def test_lazy_picks_are_the_greedy_picks_the_lowest_of_equals(
    seed: int, n: int, k: int, panel_size: int, spread: int
) -> None:
    rng = np.random.default_rng(seed)
    gains = rng.integers(0, 2 * spread, n).astype(float)
    losses = (rng.integers(0, spread + 1, (n, n)) * (rng.random((n, n)) < 0.4)).astype(float)
    left, picks = gains.copy(), []
    for _ in range(min(k, n)):
        picks.append(int(left.argmax()))
        left -= losses[picks[-1]]
        left[picks] = -np.inf
    lazy = lazy_greedy_picks(WholeNumbers(gains, losses), k, panel_size=panel_size)
    assert lazy.tolist() == picks


@given(st.lists(st.sampled_from([-np.inf, 0.0, 1.0, 2.0]), max_size=12), st.integers(1, 14))
def test_the_best_bounds_are_the_greatest_the_lowest_of_equals(values: list[float], size: int) -> None:
    bounds = np.array(values, dtype=float)
    ids, bound, first_outside = best_bounds(bounds, size)
    live = [i for i in range(len(values)) if values[i] > -np.inf]
    best = sorted(sorted(live, key=lambda i: -values[i])[:size])
    assert ids.tolist() == best
    outside = [i for i in live if i not in best]
    assert all(values[i] <= bound for i in outside)
    assert first_outside <= min((i for i in outside if values[i] == bound), default=len(values))
