"""What `draft_policy` prints: net savings, what the rule has to reach, and errors as vCache counts them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import beta

from tests.bench.draft_policy_play import SCENARIOS, Played, whole_cost
from tests.bench.draft_policy_streams import Stream

MOST_REGRET = {"L=500": 0.12, "L=500 cached": 0.12, "L=60": 0.18, "L=60 cached": 0.18}
MOST_BAD = 0.02
FIRST = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One policy on all streams, at every price."""

    name: str
    played: tuple[tuple[Played, ...], ...]  # by scenario, by stream

    def nets(self, at: int, part: slice = slice(None)) -> np.ndarray:
        """Each stream's saving as a share of what its slices cost without drafts."""
        scenario = SCENARIOS[at]
        return np.array([p.saved(scenario)[part].mean() / whole_cost(scenario) for p in self.played[at]])

    def bad(self, at: int) -> tuple[int, int]:
        """(bad drafts, drafts that entered a pool)."""
        return sum(sum(p.n_bad) for p in self.played[at]), sum(sum(p.n_taken) for p in self.played[at])

    def of_first(self, n: int) -> "Row":
        return Row(name=self.name, played=tuple(played[:n] for played in self.played))


def exact_interval(k: int, n: int) -> tuple[float, float]:
    """Clopper-Pearson, 95 %."""
    low = float(beta.ppf(0.025, k, n - k + 1)) if k else 0.0
    return low, float(beta.ppf(0.975, k + 1, n - k)) if k < n else 1.0


def print_tables(rows: Sequence[Row], streams: Sequence[Stream]) -> None:
    names = [scenario.name for scenario in SCENARIOS]
    print("\nNet saving, % of the teacher's cost, mean over streams +- 1.96 standard errors\n")
    print("| policy |", " | ".join(names), "| bad drafts | streams losing |")
    print("| --- |", " --- |" * (len(names) + 2), sep="")
    for row in rows:
        nets = [row.nets(at) for at in range(len(SCENARIOS))]
        shown = [f"{100 * n.mean():.1f} +- {196 * n.std(ddof=1) / len(n) ** 0.5:.1f}" for n in nets]
        shares = sorted({round(100 * k / max(n, 1), 1) for k, n in (row.bad(at) for at in range(len(SCENARIOS)))})
        losing = "/".join(str(int((n < 0).sum())) for n in nets)
        bad = f"{shares[0]} %" if len(shares) == 1 else f"{shares[0]} to {shares[-1]} %"
        print(f"| {row.name} |", " | ".join(shown), f"| {bad} | {losing} |")
    wrong = {
        row.name: sum(sum(p.n_wrong_slice) for p in row.played[0]) / max(1, row.bad(0)[1])
        for row in rows
        if row.name.startswith(("unverified", "vCache"))
    }
    print("\nof a wrong slice:", "; ".join(f"{name} {100 * share:.1f} %" for name, share in wrong.items()))
    print_after_change(rows, streams)


def print_after_change(rows: Sequence[Row], streams: Sequence[Stream]) -> None:
    changed = np.array([stream.changed_at < len(stream) for stream in streams])
    if not changed.any():
        return
    at = min(stream.changed_at for stream in streams)
    print(f"\nafter an unannounced change of the teacher ({changed.sum()} streams, from slice {at}), net %:")
    for row in rows:
        if row.name.startswith(("judge", "**", "clair")):
            each = [f"{100 * row.nets(i, slice(at, None))[changed].mean():.1f}" for i in range(len(SCENARIOS))]
            print(f"| {row.name} |", " | ".join(each), "|")


def print_goals(rows: Sequence[Row]) -> bool:
    """The goals, one line a price; whether all are met."""
    by_name = {row.name: row for row in rows}
    ours, best = by_name["**ours**"], by_name["judge, best threshold in hindsight"]
    is_met = True
    print("\n| ours at | above the best threshold | regret | bad drafts (95 % exact) | worst | first 20 | goals |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for at, scenario in enumerate(SCENARIOS):
        nets = ours.nets(at)
        regret = 1 - nets.mean() / by_name["clairvoyant"].nets(at).mean()
        n_bad, n_taken = ours.bad(at)
        low, high = exact_interval(n_bad, n_taken)
        gain = nets - best.nets(at)
        met = (
            gain.mean() > 0 and regret <= MOST_REGRET[scenario.name] and n_bad <= MOST_BAD * n_taken and nets.min() >= 0
        )
        is_met &= bool(met)
        print(
            f"| {scenario.name} | {100 * gain.mean():+.1f} +- {196 * gain.std(ddof=1) / len(gain) ** 0.5:.1f} points "
            f"| {100 * regret:.1f} % (at most {100 * MOST_REGRET[scenario.name]:.0f}) "
            f"| {100 * n_bad / n_taken:.2f} % ({100 * low:.2f} to {100 * high:.2f}; {n_bad} of {n_taken}) "
            f"| {100 * nets.min():+.1f} % | {100 * ours.nets(at, slice(0, FIRST)).mean():.1f} % "
            f"| {'met' if met else 'MISSED'} |"
        )
    return is_met


def print_requests(rows: Sequence[Row]) -> None:
    """What vCache promises, errors as a share of requests (a request is a slice), beside bad drafts among those that
    were reused. A policy that knows prices has no such counts."""
    names = [scenario.name for scenario in SCENARIOS]
    print(f"\nvCache's own code, the first {len(rows[0].played[0])} streams\n")
    print("| policy |", " | ".join(names), "| hits | wrong slice, of requests (worst stream) | of hits | bad drafts |")
    print("| --- |", " --- |" * (len(names) + 4), sep="")
    for row in rows:
        nets = [row.nets(at) for at in range(len(SCENARIOS))]
        shown = [f"{100 * n.mean():.1f} +- {196 * n.std(ddof=1) / len(n) ** 0.5:.1f}" for n in nets]
        shares = [100 * k / max(n, 1) for k, n in (row.bad(at) for at in range(len(SCENARIOS)))]
        bad = f"{shares[0]:.1f} %" if min(shares) == max(shares) else f"{min(shares):.1f} to {max(shares):.1f} %"
        print(f"| {row.name} |", " | ".join(shown), f"| {_errors(row)} | {bad} |")


def _errors(row: Row) -> str:
    if any(played != row.played[0] for played in row.played):
        return "| |"
    n_requests = sum(len(p.n_taken) for p in row.played[0])
    n_hits = sum(n > 0 for p in row.played[0] for n in p.n_taken)
    wrong = [sum(n > 0 for n in p.n_wrong_slice) for p in row.played[0]]
    worst = max(n / len(p.n_taken) for n, p in zip(wrong, row.played[0], strict=True))
    return (
        f"{100 * n_hits / n_requests:.1f} % | {100 * sum(wrong) / n_requests:.2f} % ({100 * worst:.1f}) "
        f"| {100 * sum(wrong) / max(n_hits, 1):.1f} %"
    )
