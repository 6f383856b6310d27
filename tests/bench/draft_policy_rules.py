"""The policies that `draft_policy` compares. Ours is the product's own `decide` and `update`; a peer's threshold is
applied to the cosine distance of MiniLM sentences, with our judge behind it: read it as a fixed number that nobody
calibrated for these texts."""

import random
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from backend.domain.drafts.calibration import Curves, SourceCount, flat_curve, update
from backend.domain.drafts.policy import Ledger, Offerable, decide
from backend.domain.drafts.vocabulary import Arm
from tests.bench.draft_policy_play import Scenario, Shelf, Taken
from tests.bench.draft_policy_streams import N_CANDIDATES, SENSITIVITY, SPECIFICITY, Stream

Draft = tuple[int, int]  # source, place


def _drafts(shelf: Shelf) -> list[Draft]:
    """Nearest source first."""
    return [(source, place) for source, places in zip(shelf.sources, shelf.drafts, strict=True) for place in places]


def _accepted(stream: Stream, now: int, shown: Iterable[Draft]) -> list[Draft]:
    return [(source, place) for source, place in shown if stream.says_yes[now, source, place]]


class Threshold:
    """Shows a judge the drafts of every source within `distance`, nearest first, at most `most`."""

    def __init__(self, distance: float, most: int = N_CANDIDATES) -> None:
        self._distance, self._most = distance, most

    def __call__(self, stream: Stream, shelf: Shelf) -> Taken:
        near = [d for d in _drafts(shelf) if stream.distances[shelf.slice, d[0]] <= self._distance]
        shown = near[: self._most]
        taken = tuple(_accepted(stream, shelf.slice, shown))
        return Taken(drafts=taken, n_shown=len(shown), n_requests=bool(shown))


class Unverified:
    """Takes them as they are, as a semantic cache does."""

    def __init__(self, distance: float) -> None:
        self._distance = distance

    def __call__(self, stream: Stream, shelf: Shelf) -> Taken:
        near = [d for d in _drafts(shelf) if stream.distances[shelf.slice, d[0]] <= self._distance]
        return Taken(drafts=tuple(near[:N_CANDIDATES]))


class Clairvoyant:
    """Knows every pair's true rate, and so how often the judge will say yes; not what it will say. Shows, likeliest
    first, as many as make the expected saving largest, in one request: the distribution of how many are accepted is
    computed, so a call for fresh candidates that is not made at all counts as it is priced."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario

    def __call__(self, stream: Stream, shelf: Shelf) -> Taken:
        rates = stream.rates[shelf.slice]
        yes = {s: float(rates[s]) * SENSITIVITY + (1 - float(rates[s])) * (1 - SPECIFICITY) for s in shelf.sources}
        drafts = sorted(_drafts(shelf), key=lambda d: -yes[d[0]])
        shown = drafts[: self._how_many([yes[source] for source, _ in drafts])]
        taken = tuple(_accepted(stream, shelf.slice, shown))
        return Taken(drafts=taken, n_shown=len(shown), n_requests=bool(shown))

    def _how_many(self, yes: Sequence[float]) -> int:
        worth = np.arange(N_CANDIDATES + 1) * self._scenario.output
        worth[-1] += self._scenario.prompt
        chances = np.zeros(N_CANDIDATES + 1)  # of that many accepted; more than are needed count as enough
        chances[0] = 1.0
        best, n_best = 0.0, 0
        for n, chance in enumerate(yes, start=1):
            moved = chances * chance
            chances -= moved
            chances[1:] += moved[:-1]
            chances[-1] += moved[-1]
            saved = float(chances @ worth) - self._scenario.overhead - n * self._scenario.verify
            if saved > best:
                best, n_best = saved, n
        return n_best


class Ours:
    """The product's decision and calibration, with a stream's ledger kept as a worker keeps it; no kinship, and a
    flat start."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self._scenario = scenario
        self._rng = random.Random(seed)
        self.curve = flat_curve()
        self._n_lookups = self._n_since_shown = 0
        self._spent = self._explored = 0.0

    def __call__(self, stream: Stream, shelf: Shelf) -> Taken:
        drafts = _drafts(shelf)
        verify, distances = self._scenario.verify, stream.distances[shelf.slice]
        offerables = [
            Offerable(index=i, source=source, distance=float(distances[source]), verify_microusd=verify)
            for i, (source, _) in enumerate(drafts)
        ]
        decision = self._decide(offerables, N_CANDIDATES, {})
        shown = [drafts[i] for i in decision.first or decision.shown]
        n_requests = int(bool(shown))
        if decision.first:
            seen = self._counts(stream, shelf, shown)
            rest = [o for o in offerables if drafts[o.index] not in shown]
            wanted = N_CANDIDATES - len(_accepted(stream, shelf.slice, shown))
            more = [drafts[i] for i in self._decide(rest, wanted, seen).shown]
            shown += more
            n_requests += bool(more)
        taken = Taken(drafts=tuple(_accepted(stream, shelf.slice, shown)), n_shown=len(shown), n_requests=n_requests)
        self._learn(stream, shelf, shown)
        self._book(taken, decision.arm, bool(offerables))
        return taken

    def _decide(self, offerables: Sequence[Offerable], n_wanted: int, seen: dict[int, SourceCount]):  # type: ignore[no-untyped-def]
        return decide(
            Curves(slice=self.curve, label=self.curve, other=self.curve),
            offerables,
            n_wanted=n_wanted,
            fresh_microusd=self._scenario.fresh,
            overhead_microusd=self._scenario.overhead,
            ledger=Ledger(
                n_lookups=self._n_lookups,
                n_since_shown=self._n_since_shown,
                spent_microusd=self._spent,
                explored_microusd=self._explored,
            ),
            rng=self._rng,
            seen=seen,
        )

    def _counts(self, stream: Stream, shelf: Shelf, shown: Sequence[Draft]) -> dict[int, SourceCount]:
        n_accepted = Counter(source for source, _ in _accepted(stream, shelf.slice, shown))
        return {
            source: SourceCount(
                distance=float(stream.distances[shelf.slice, source]), n_shown=n, n_accepted=n_accepted[source]
            )
            for source, n in Counter(source for source, _ in shown).items()
        }

    def _learn(self, stream: Stream, shelf: Shelf, shown: Sequence[Draft]) -> None:
        if shown:
            self.curve = update(self.curve, self._counts(stream, shelf, shown).values())

    def _book(self, taken: Taken, arm: Arm, had_drafts: bool) -> None:
        verification = taken.n_requests * self._scenario.overhead + taken.n_shown * self._scenario.verify
        n_fresh = N_CANDIDATES - min(len(taken.drafts), N_CANDIDATES)
        self._spent += verification + n_fresh * self._scenario.output + (n_fresh > 0) * self._scenario.prompt
        self._explored += verification if arm is Arm.PROBED else 0.0
        self._n_lookups += 1
        self._n_since_shown = 0 if taken.n_shown else self._n_since_shown + had_drafts


class VCache:
    """The rule of vCache (Schroeder et al. 2502.03771, written anew from the paper): reuse the nearest entry unverified
    with the probability that keeps errors below `delta`, given a logistic fit of correctness on similarity; else
    generate, and learn whether it would have been right. `is_global` fits one curve for all entries; the label is
    whether the slices match, which is more than a cache could know. Here every generated slice is an entry; vCache's
    own code, which `draft_vcache` plays, makes one where the nearest was wrong, and saves several times as much."""

    def __init__(self, *, is_global: bool, seed: int, delta: float = 0.05) -> None:
        self._delta, self._is_global = delta, is_global
        self._rng = np.random.default_rng(seed)
        self._seen: dict[int, list[tuple[float, bool]]] = {}

    def __call__(self, stream: Stream, shelf: Shelf) -> Taken:
        if not shelf.sources:
            return Taken()
        nearest = shelf.sources[0]
        similarity = 1 - float(stream.distances[shelf.slice, nearest])
        seen = self._seen.setdefault(-1 if self._is_global else nearest, [])
        right = _lower_bound(seen, similarity) if len(seen) >= 6 else 0.0
        if self._rng.random() >= (1 - self._delta - right) / (1 - right):
            return Taken(drafts=tuple((nearest, place) for place in shelf.drafts[0]))
        seen.append((similarity, bool(stream.matches[shelf.slice, nearest])))
        return Taken()


_EPSILONS = np.array([0.001, 0.003, 0.01, 0.02, 0.05, 0.1, 0.2])
_QUANTILES = np.array([3.090, 2.748, 2.326, 2.054, 1.645, 1.282, 0.842])  # of the normal at 1 - epsilon


def _lower_bound(seen: Sequence[tuple[float, bool]], similarity: float) -> float:
    """max over epsilon of (1 - epsilon) times the logistic at its one-sided lower bound (delta method)."""
    x = np.array([(1.0, s) for s, _ in seen])
    y = np.array([label for _, label in seen], dtype=np.float64)
    weights, covariance = _logistic(x, y)
    at = np.array([1.0, similarity])
    lower = at @ weights - _QUANTILES * np.sqrt(at @ covariance @ at)
    return float(((1 - _EPSILONS) / (1 + np.exp(-lower))).max())


def _logistic(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Newton's method with a weak normal prior (standard deviation 10), so that separable labels have a fit."""
    weights = np.zeros(2)
    for _ in range(25):
        p = 1 / (1 + np.exp(-(x @ weights)))
        hessian = x.T @ (x * (p * (1 - p))[:, None]) + np.eye(2) / 100
        step = np.linalg.solve(hessian, x.T @ (y - p) - weights / 100)
        weights = weights + step
        if np.abs(step).max() < 1e-6:
            break
    return weights, np.linalg.inv(hessian)
