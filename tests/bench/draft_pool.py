"""Do drafts pay that compete unverified? Streams of compiles on three sets, ten prices, and what else one could do.

    python -m tests.bench.draft_pool [DATA] [--streams N] [--set NAME]

The constants and the priors were chosen on other families and another seed (`draft_priors`); the sets played here were
not used to choose anything. Exits with 2 where a goal is missed.
"""

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from backend.domain.drafts.calibration import flat_curves
from backend.domain.drafts.judge_controls import exact_interval
from tests.bench.banking77_data import data_folder
from tests.bench.draft_pool_before import Before, play_before
from tests.bench.draft_pool_play import Questions, play_pool
from tests.bench.draft_pool_policies import Clairvoyant, Fixed, Ours
from tests.bench.draft_pool_prices import CHOICES, PROMPT, Played, Scenario
from tests.bench.draft_pool_texts import TextSet, read_all
from tests.bench.draft_pool_world import N_COMPILES, N_SLICES, FilterRates, N, World, draw_worlds, filter_rates

N_STREAMS = 15
SHEETS = {"5:1": (1.0, 5.0), "4:1": (0.15, 0.6), "8:1": (1.25, 10.0)}
LENGTHS = (12, 60, 500)
SCENARIOS = tuple(
    Scenario(name=f"{sheet}, L={length}", input=prices[0], output=prices[1], length=length)
    for sheet, prices in SHEETS.items()
    for length in LENGTHS
)
CHEAP = replace(SCENARIOS[0], name="5:1, L=12, judge at a tenth", judge=0.1)
LENIENT, LENIENT_AT = 0.85, SCENARIOS[1]  # a judge that lets 15 % of the wrong ones through
DISTANCES, SHARES = (0.3, 0.5, 0.7, 2.0), (0.6, 0.8)
LEAST_NET = {"5:1, L=12": 0.40, "5:1, L=60": 0.45, "5:1, L=500": 0.48, CHEAP.name: 0.60}
LEAST_EARLY = {"5:1, L=12": 0.28}
MOST_BAD, MOST_REGRET = 0.02, 0.15
EARLY = slice(1, 3)  # compiles 2 and 3
OURS, CLAIRVOYANT, BEFORE = "**ours**", "clairvoyant", "before selection (the product as it was)"


@dataclass(slots=True, kw_only=True)
class Row:
    """One policy at one price, on all streams of a set."""

    scenario: Scenario
    played: list[Played] = field(default_factory=list)

    def nets(self, part: slice = slice(None)) -> NDArray[np.float64]:
        """Each stream's saving as a share of what its slices cost without drafts."""
        whole = N * self.scenario.length * self.scenario.output + N / CHOICES * PROMPT * self.scenario.input
        costs = [np.mean([spent.cost(self.scenario) for spent in played.spent[part]]) for played in self.played]
        return 1 - np.array(costs) / (whole * N_SLICES)

    def total(self, what: str) -> int:
        return sum(getattr(played, what) for played in self.played)


def policies_at(
    scenario: Scenario, passed: FilterRates, *, all_of_them: bool
) -> dict[str, Callable[[World, int], Played]]:
    frugal, thrice = (Questions(scenario=scenario, are_frugal=each) for each in (True, False))
    policies: dict[str, Callable[[World, int], Played]] = {
        BEFORE: lambda world, i: play_before(world, Before(scenario, i)),
        CLAIRVOYANT: lambda world, _: play_pool(world, Clairvoyant(scenario, passed), frugal),
        OURS: lambda world, i: play_pool(world, Ours(scenario, i), frugal),
    }
    if not all_of_them:
        return policies
    fixed = {
        f"fixed, d <= {d}, counts {share}": lambda world, _, d=d, share=share: play_pool(world, Fixed(d, share), frugal)  # type: ignore[misc]
        for d in DISTANCES
        for share in SHARES
    }
    return {
        **policies,
        "ours, up to three questions": lambda world, i: play_pool(world, Ours(scenario, i), thrice),
        "ours, no gold for the local filter": lambda world, i: play_pool(
            world, Ours(scenario, i, uses_filter=False), frugal
        ),
        "ours, from flat curves": lambda world, i: play_pool(world, Ours(scenario, i, start=flat_curves()), frugal),
        "random order, counts .6": lambda world, i: play_pool(world, Fixed(2.0, 0.6, seed=i), frugal),
        **fixed,
    }


def play_set(texts: TextSet, outside: NDArray[np.float32], n_streams: int) -> dict[str, dict[str, Row]]:
    """{scenario: {policy: row}}, a stream at a time."""
    passed = filter_rates(texts.families, texts.seed)
    print(
        f"\n## {texts.name}: {n_streams} streams of {N_COMPILES} x {N_SLICES} slices, {len(texts.families)} families, "
        f"seed {texts.seed}\n\nThe local filter lets {100 * passed.own:.1f} % of the own label's sentences through, "
        f"{100 * passed.other:.1f} % of those of the three nearest other labels."
    )
    rows: dict[str, dict[str, Row]] = {}
    for i, world in enumerate(draw_worlds(texts.families, outside, n_streams, texts.seed, passed)):
        for scenario in (*SCENARIOS, CHEAP):
            policies = policies_at(scenario, passed, all_of_them=scenario in SCENARIOS[: len(LENGTHS)])
            for name, policy in policies.items():
                row = rows.setdefault(scenario.name, {}).setdefault(name, Row(scenario=scenario))
                row.played.append(policy(world, i))
    lenient = Row(scenario=LENIENT_AT)
    for i, world in enumerate(draw_worlds(texts.families, outside, n_streams, texts.seed, passed, LENIENT)):
        play = policies_at(LENIENT_AT, passed, all_of_them=False)[OURS]
        lenient.played.append(play(world, i))
    rows["a judge that refuses 85 % of the wrong drafts, 5:1, L=60"] = {OURS: lenient}
    return rows


def print_row(name: str, row: Row) -> None:
    nets, early = row.nets(), row.nets(EARLY)
    spread = 196 * nets.std(ddof=1) / len(nets) ** 0.5
    accepted, picks = row.total("n_accepted"), row.total("n_picks")
    n_slices = len(nets) * N_COMPILES * N_SLICES
    print(
        f"| {name} | {100 * nets.mean():.1f} ± {spread:.1f} | {100 * early.mean():.1f} "
        f"| {int((nets < 0).sum())} ({100 * nets.min():+.1f}) | {row.total('n_asked') / n_slices:.1f} "
        f"| {_share(row.total('n_bad'), accepted)} | {_share(row.total('n_bad_picks'), picks)} "
        f"| {_share(row.total('n_bad_after'), picks)} | {100 * row.total('n_displaced') / picks:.1f} |"
    )


def _share(k: int, n: int) -> str:
    low, high = exact_interval(k, n)
    return f"{100 * k / max(n, 1):.2f} ({100 * low:.2f} to {100 * high:.2f})"


HEADER = (
    "| policy | net % | compiles 2 and 3 | streams below 0 (worst) | asked a slice | bad % of accepted | of picks "
    "| of picks after label votes | displaced picks % |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


def print_tables(rows: dict[str, dict[str, Row]]) -> None:
    for scenario, by_policy in rows.items():
        print(f"\n{scenario}\n\n{HEADER}")
        fixed = {name: row for name, row in by_policy.items() if name.startswith("fixed")}
        for name, row in by_policy.items():
            if name not in fixed:
                print_row(name, row)
        if fixed:
            best = max(fixed, key=lambda name: float(fixed[name].nets().mean()))
            print_row(f"best in hindsight of {len(fixed)}: {best}", fixed[best])


def print_goals(rows: dict[str, dict[str, Row]]) -> bool:
    """One line a goal; whether all are met."""
    are_met = True

    def line(goal: str, value: float, bound: float, *, is_least: bool) -> None:
        nonlocal are_met
        met = value >= bound if is_least else value <= bound
        are_met &= met
        word, end = ("at least", "") if is_least else ("at most", "")
        print(f"| {goal} | {100 * value:.1f} % | {word} {100 * bound:.0f} %{end} | {'met' if met else 'MISSED'} |")

    print("\n| goal | value | bound | |\n| --- | --- | --- | --- |")
    for name, by_policy in rows.items():
        ours = by_policy[OURS]
        if CLAIRVOYANT not in by_policy:
            continue
        if name in LEAST_NET:
            line(f"net, {name}", float(ours.nets().mean()), LEAST_NET[name], is_least=True)
        if name in LEAST_EARLY:
            line(f"compiles 2 and 3, {name}", float(ours.nets(EARLY).mean()), LEAST_EARLY[name], is_least=True)
        line(f"worst stream, {name}", float(ours.nets().min()), 0.0, is_least=True)
        line(f"bad among picks, {name}", ours.total("n_bad_picks") / ours.total("n_picks"), MOST_BAD, is_least=False)
        regret = 1 - float(ours.nets().mean() / by_policy[CLAIRVOYANT].nets().mean())
        line(f"regret, {name}", regret, MOST_REGRET, is_least=False)
    return are_met


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path, help="the folder of the data sets (default $KOLM_DATA)")
    parser.add_argument("--set", help="one set alone: HWU64, CLINC150 or BANKING77")
    parser.add_argument("--streams", type=int, default=N_STREAMS)
    asked = parser.parse_args()
    try:
        texts, sets = read_all(asked.data or data_folder())
    except FileNotFoundError as missing:
        print(f"No data, nothing measured: {missing}", file=sys.stderr)
        return 1
    are_met = True
    for each in sets:
        if asked.set in (None, each.name):
            started = time.process_time()
            rows = play_set(each, texts.outside, asked.streams)
            print_tables(rows)
            are_met &= print_goals(rows)
            print(f"\n{time.process_time() - started:.0f} s of processor time", flush=True)
    return 0 if are_met else 2


if __name__ == "__main__":
    sys.exit(main())
