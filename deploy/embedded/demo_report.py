"""The demo's tables, from what the API answers. Ratios come in parts per million and money in micro-USD."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.table import Table
from rich.text import Text

ACCURACY_WEIGHT = 0.40  # of the K-score; what else it weighs was measured without sampling error


def ratio(ppm: int | None) -> str:
    return "-" if ppm is None else f"{ppm / 1e6:.3f}"


def usd(microusd: int | None) -> str:
    return "-" if microusd is None else f"${microusd / 1e6:.4f}"


def verdict(compile: Mapping[str, Any]) -> Text:
    """K-score with its interval, accuracy with its own, and what the gate said."""
    text = Text()
    text.append(f"{compile['name']}  {compile['id']}  {compile['status']}\n", style="bold")
    if failure := compile["failure"]:
        text.append(f"failed      {failure['message']}\n", style="red")
    evaluation, gate = compile["evaluation"], compile["gate"]
    if evaluation is None or gate is None:
        return text
    low, high = (evaluation[f"accuracy_{side}_ppm"] for side in ("low", "high"))
    score, share = compile["k_score_ppm"], ACCURACY_WEIGHT
    k_low, k_high = (score + share * (bound - evaluation["accuracy_ppm"]) for bound in (low, high))
    confidence = f"{evaluation['confidence_ppm'] / 1e4:.0f} %"
    text.append(f"K-score     {ratio(score)}  [{k_low / 1e6:.3f}, {k_high / 1e6:.3f}] at {confidence}\n")
    text.append(f"accuracy    {ratio(evaluation['accuracy_ppm'])}  [{ratio(low)}, {ratio(high)}]")
    text.append(f"  {evaluation['correct']} of {evaluation['n']} held-out examples\n")
    for baseline in evaluation["baselines"]:
        text.append(f"  beside    {ratio(baseline['accuracy_ppm'])}  {baseline['name']}\n", style="dim")
    passed = gate["passed"]
    text.append(f"gate        {'passed' if passed else 'FAILED'}\n", style="green" if passed else "red")
    for floor in gate["floors"]:
        if not floor["passed"]:
            text.append(f"  {floor['message']}\n", style="red")
    if gate["next_step"]:
        text.append(f"  cheapest next step: {gate['next_step']}\n")
    return text


def slices(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title="K of N selected", title_justify="left")
    for heading in ("slice", "label", "candidates", "k_requested", "k_actual", "rejected", "reactions"):
        table.add_column(heading, justify="left" if heading in ("slice", "label", "reactions") else "right")
    for row in rows:
        reactions = ", ".join(str(reaction.get("kind", reaction)) for reaction in row["reactions"]) or "-"
        numbers = (row["n_candidates"], row["k_requested"], row["k_actual"], row["n_rejected"])
        table.add_row(row["name"], row["label"] or "-", *map(str, numbers), reactions)
    return table


def costs(compile: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> Table:
    """Estimate beside actual for each step, with what was repeated at our expense."""
    table = Table(title="cost", title_justify="left", show_footer=True)
    total = compile["estimate"]["total"]
    time = _seconds(compile["started_at"], compile["ended_at"])
    table.add_column("step", footer="total")
    table.add_column("estimate (low to high)", justify="right", footer=f"{_range(total)}")
    table.add_column("expected", justify="right", footer=usd(total["expected_microusd"]))
    table.add_column("actual", justify="right", footer=usd(compile["spent_microusd"]))
    table.add_column("waste (ours)", justify="right", footer=usd(compile["waste_microusd"]))
    table.add_column("time", justify="right", footer=time)
    for step in steps:
        estimate = step["estimate"] or {}
        table.add_row(
            step["name"],
            _range(estimate) if estimate else "-",
            usd(estimate.get("expected_microusd")),
            usd(step["spent_microusd"]),
            usd(step["waste_microusd"]),
            _seconds(step["started_at"], step["ended_at"]),
        )
    return table


def _range(amount: Mapping[str, int]) -> str:
    return f"{usd(amount['low_microusd'])} to {usd(amount['high_microusd'])}"


def _seconds(start: str | None, end: str | None) -> str:
    if start is None or end is None:
        return "-"
    return f"{(datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds():.1f} s"
