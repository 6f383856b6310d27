"""The demo's tables, from what the API answers. Ratios come in parts per million and money in micro-USD."""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from backend.domain import number_words

ACCURACY_WEIGHT = 0.40  # of the K-score; what else it weighs was measured without sampling error


def ratio(ppm: int | None) -> str:
    return "-" if ppm is None else number_words.score(ppm)


def usd(microusd: int | None) -> str:
    return "-" if microusd is None else number_words.usd(microusd)


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
    text.append(
        f"K-score     {ratio(score)}  [{ratio(math.floor(k_low))}, {ratio(math.floor(k_high))}] at {confidence}\n"
    )
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
    table = _table("K of N selected", "slice", "candidates", "k_requested", "k_actual", "rejected", "reactions")
    for row in rows:
        numbers = (row["n_candidates"], row["k_requested"], row["k_actual"], row["n_rejected"])
        reactions = ", ".join(entry["reaction"] for entry in row["reactions"]) or "-"
        table.add_row(row["name"], *("-" if n is None else str(n) for n in numbers), reactions)
    return table


def drafts(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Tabulate what the draft cache had for each slice, and what came of it."""
    table = _table("drafts of earlier compiles", "slice", "how", "offered", "accepted", "entered", "net saving")
    for row in rows:
        ledger = row["drafts"]
        if ledger is None:
            continue
        how = ledger["strategy"] if ledger["offered"] else ledger["arm"].replace("_", " ")
        counts = (str(ledger[name]) for name in ("offered", "accepted", "entered"))
        table.add_row(row["name"], how, *counts, usd((ledger["saving"] or {}).get("net_microusd", 0)))
    return table


def draft_summary(compile: Mapping[str, Any]) -> Text:
    """Acceptance and net saving of the whole compile, as the API says them."""
    saving = compile["drafts"]
    text = Text()
    if saving is None:
        text.append("drafts      no slice has searched the draft cache\n", style="bold")
        return text
    text.append(f"drafts      {saving['summary']}\n", style="bold")
    text.append(f"accepted    {saving['accepted']}\n", style="bold")
    if saving["acceptance"]["n"]:
        text.append(
            "            the built-in judge is exact and the slices are disjoint: near 1 is the best case\n", "dim"
        )
    text.append("            repeat: written for this very prompt, so exact, and nothing is asked\n", style="dim")
    text.append("            not worth: asking would cost more than writing afresh\n", style="dim")
    return text


def bill(compile: Mapping[str, Any], bill: Mapping[str, Any]) -> Text:
    """Write what the compile comes to, in one line, with what kolm carries and what drafts saved."""
    text = Text()
    parts: dict[str, int] = {}
    for line in bill["lines"]:
        if line["counted"]:
            name = line["step"] or line["label"]
            parts[name] = parts.get(name, 0) + line["amount_microusd"]
    parts_text = ", ".join(f"{name} {usd(amount)}" for name, amount in parts.items()) or "nothing used"
    text.append(f"bill        {usd(bill['total_microusd'])} for {compile['name']} {compile['id']}\n", style="bold")
    text.append(f"            {parts_text}\n", style="dim")
    carried = usd(bill["waste_microusd"])
    saved = usd(bill["draft_savings"]["net_microusd"])
    text.append(f"            carried by kolm {carried}, saved by drafts {saved}", style="dim")
    return text


def costs(compile: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> Table:
    """Estimate beside actual for each step, with what was repeated at our expense."""
    table = _table("cost", "step", "low", "expected", "high", "actual", "waste (ours)", "time")
    for step in steps:
        table.add_row(step["name"], *_amounts(step["estimate"] or {}, step))
    table.add_section()
    table.add_row("total", *_amounts(compile["estimate"]["total"], compile))
    return table


def _table(title: str, first: str, *others: str) -> Table:
    """Narrow enough for 80 columns."""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE, padding=(0, 1), pad_edge=False)
    table.add_column(first, no_wrap=True)
    for heading in others:
        table.add_column(heading, justify="right")
    return table


def _amounts(estimate: Mapping[str, int], actual: Mapping[str, Any]) -> tuple[str, ...]:
    planned = (usd(estimate.get(f"{bound}_microusd")) for bound in ("low", "expected", "high"))
    spent = (usd(actual["spent_microusd"]), usd(actual["waste_microusd"]))
    return (*planned, *spent, seconds(actual["started_at"], actual["ended_at"]))


def seconds(start: str | None, end: str | None) -> str:
    if start is None or end is None:
        return "-"
    return number_words.duration((datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds())
