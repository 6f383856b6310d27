"""The tables of `students`, of its runs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import t

Run = Mapping[str, Any]


def table(runs: Iterable[Run]) -> str:
    """Accuracy in percent (calibration error; CPU seconds), means over seeds."""
    runs = list(runs)
    arms = list(dict.fromkeys(run["arm"] for run in runs))
    lines = ["| set, K (seeds) | " + " | ".join(arms) + " |", "|---" * (len(arms) + 1) + "|"]
    for name, k in _cells(runs):
        mine = [run for run in runs if (run["set"], run["k"]) == (name, k)]
        n = len({run["seed"] for run in mine})
        cells = [_cell([run for run in mine if run["arm"] == arm]) for arm in arms]
        lines.append(f"| {name}, {k} ({n}) | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def differences(runs: Sequence[Run], against: str) -> str:
    """Points that each arm has over `against` on the same rows: mean, half of its 95 % interval, number of seeds; below
    them the mean of the sets and its interval over the sets. Empty where `against` did not run."""
    by_key = {(run["set"], run["k"], run["seed"], run["arm"]): run["accuracy"] for run in runs}
    arms = [arm for arm in dict.fromkeys(run["arm"] for run in runs) if arm != against]
    if not any(run["arm"] == against for run in runs):
        return ""
    lines = [f"| points over {against} | " + " | ".join(arms) + " |", "|---" * (len(arms) + 1) + "|"]
    for k in sorted({run["k"] for run in runs}):
        means: dict[str, list[float]] = {arm: [] for arm in arms}
        for name in dict.fromkeys(run["set"] for run in runs):
            cells = []
            for arm in arms:
                points = [100 * (value - by_key[(name, k, seed, against)])
                          for (of, at, seed, mine), value in by_key.items()
                          if (of, at, mine) == (name, k, arm) and (name, k, seed, against) in by_key]  # fmt: skip
                means[arm] += [float(np.mean(points))] if points else []
                cells.append(_mean(points))
            lines.append(f"| {name}, {k} | " + " | ".join(cells) + " |")
        lines.append(f"| **mean of the sets, {k}** | " + " | ".join(_mean(means[arm]) for arm in arms) + " |")
    return "\n".join(lines)


def _cells(runs: Sequence[Run]) -> list[tuple[str, int]]:
    return list(dict.fromkeys((run["set"], run["k"]) for run in runs))


def _mean(points: Sequence[float]) -> str:
    if not points:
        return "-"
    if len(points) == 1:
        return f"{points[0]:+.1f} (1)"
    half = t.ppf(0.975, len(points) - 1) * np.std(points, ddof=1) / np.sqrt(len(points))
    return f"{np.mean(points):+.1f} ± {half:.1f} ({len(points)})"


def _cell(runs: Sequence[Run]) -> str:
    if not runs:
        return "-"
    accuracy, cpu = (np.mean([run[key] for run in runs]) for key in ("accuracy", "cpu_s"))
    errors = [run["ece"] for run in runs if run["ece"] is not None]
    return f"{100 * accuracy:.1f} ({np.mean(errors):.3f}; {cpu:.1f})"
