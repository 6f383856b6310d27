"""The draft cache's answers as a person reads them: tables and sentences on standard output."""

import re
import sys
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from backend.domain.number_words import interval, percent, score, usd
from gpu_runners.cli.display.saved_drafts import saved_lines
from gpu_runners.terminal_text import as_line, raw

WIDTH = 200  # where there is no terminal to ask
TEXT_CHARACTERS = 60
Row = dict[str, Any]


def print_stats(answer: Row) -> None:
    console, families = _console(), answer["data"]
    if not families:
        console.print("The draft cache is empty: nothing was compiled yet, or nothing was left over.")
    for at, family in enumerate(families):
        account = (*_lookups(family["lookups"]), *_labels(family["labels"]))
        saved = saved_lines(family["saving"]) if family["lookups"]["n_lookups"] else []
        figures = (*_holdings(family), *(f"  {line}" for line in saved), *account)
        lines = [*([""] if at else []), *figures, *_holdback(family["holdback"])]
        for line in lines:
            console.print(as_line(line), markup=False, highlight=False, soft_wrap=True)
        rows = [(scope, part) for scope in family["scopes"] for part in scope["strategies"]]
        if rows:
            console.print(_strategies(rows))
    if len(families) > 1:
        lines = ["", "all families", *(f"  {line}" for line in saved_lines(answer["total"]))]
        console.print("\n".join(map(as_line, lines)), markup=False, highlight=False, soft_wrap=True)


def print_drafts(rows: list[Row]) -> None:
    console = _console()
    table = _table("id", "family", "state", "", "tokens", "shown", "accepted", "text", right=(4, 5, 6))
    for row in rows:
        kept = "kept" if row["is_kept"] else ""
        counts = (str(row[name]) for name in ("n_tokens", "n_shown", "n_accepted"))
        _add(table, row["id"], row["family"], row["state"], kept, *counts, _short(row["text"]))
    console.print(table if rows else "No draft fits.")


def print_draft(row: Row) -> None:
    console = _console()
    names = ("id", "family", "teacher", "embedder", "state", "is_kept", "score", "signal", "n_tokens", "n_bytes",
             "n_shown", "n_accepted", "root", "compile", "created_at", "expires_at")  # fmt: skip
    table = Table.grid(padding=(0, 2))
    for name in names:
        if row[name] is not None:
            _add(table, name, str(row[name]))
    _add(table, "cost", usd(row["cost_microusd"]))
    _add(table, "slice", row["slice_text"] or "gone")
    _add(table, "text", _text(row["text"]))
    console.print(table)
    if row["verdicts"]:
        console.print(_verdicts(row["verdicts"]))


def print_preview(answer: Row) -> None:
    console = _console()
    table = _table("slice", "what", "by", "nearest", "drafts", "shown", "accepted", "acceptance", "break-even", "net",
                   right=(3, 4, 5, 6, 9))  # fmt: skip
    for part in answer["slices"]:
        _add(table, *_preview_cells(part))
    console.print(table)
    for reason in dict.fromkeys(part["reason"] for part in answer["slices"]):
        slices = [part["slice"] for part in answer["slices"] if part["reason"] == reason]
        console.print(as_line(f"{', '.join(slices)}: {reason}"), markup=False, highlight=False, soft_wrap=True)
    console.print(as_line(saving_sentence(answer["total"])), markup=False, highlight=False, soft_wrap=True)


def _preview_cells(part: Row) -> list[str]:
    return [
        part["slice"],
        part["arm"].replace("_", " "),
        part["strategy"] or "",
        _distance(part["nearest_distance_ppm"]),
        str(part["n_drafts"]),
        str(part["n_shown"]),
        f"{part['expected_accepted']:.1f}",
        _interval(part["acceptance_low_ppm"], part["acceptance_high_ppm"]),
        _break_even(part["break_even_ppm"]),
        usd(part["expected_net_microusd"]),
    ]


def saving_sentence(total: Row) -> str:
    """Say what the drafts of earlier compiles should be worth to this one, from a preview's or an estimate's total."""
    if total["expected_net_microusd"] is None:
        return f"draft cache: unknown. {total['reason']}"
    if not total["n_shown"]:
        return f"draft cache: nothing would be offered. {total.get('reason') or ''}".rstrip()
    net, avoided, paid = (total[f"expected_{name}_microusd"] for name in ("net", "avoided", "verification"))
    verb = "cost" if net < 0 else "save"
    return (
        f"draft cache: expected to {verb} {usd(abs(net))} ({usd(avoided)} avoided less {usd(paid)} verification): "
        f"{total['n_shown']} drafts shown in {total['n_slices_offered']} of {total['n_slices']} slices, "
        f"{total['expected_accepted']:.1f} accepted"
    )


def _holdings(family: Row) -> list[str]:
    kept = f", and {family['n_kept']:,} picked ones for exact rules" if family["n_kept"] else ""
    bad = f", {family['n_quarantined']:,} in quarantine" if family["n_quarantined"] else ""
    paid = f"{family['n_bytes'] / 1e6:.1f} MB, {usd(family['cost_microusd'])} paid for the drafts"
    return [
        f"family {family['family']}",
        f"  {family['n_drafts']:,} drafts of {family['n_sources']:,} slices{kept}{bad}; {paid}",
    ]


def _lookups(lookups: Row) -> list[str]:
    if not lookups["n_lookups"]:
        return ["  no slice has searched the draft cache yet"]
    arms = ", ".join(f"{name.replace('_', ' ')} {n:,}" for name, n in lookups["arms"].items())
    costs = (
        f"{usd(lookups[f'{name}_microusd'])} {words}"
        for name, words in (("verification", "verification"), ("embedding", "embedding"), ("audit", "audits"),
                            ("exploration", "exploration"))
    )  # fmt: skip
    return [
        f"  {lookups['n_lookups']:,} slices searched the cache: {arms}",
        f"  slices: {lookups['n_reused']:,} drafts entered a pool; avoided {usd(lookups['avoided_microusd'])}, "
        f"less {', '.join(costs)}",
    ]


def _labels(labels: Row) -> list[str]:
    if not labels["n_reused"]:
        return []
    return [f"  labels: {labels['n_reused']:,} prompts were answered before; avoided {usd(labels['avoided_microusd'])}"]


def _holdback(holdback: Row | None) -> list[str]:
    if holdback is None:
        return []
    sides = [_side(words, holdback[name]) for name, words in (("held_back", "held back"), ("not_held_back", "not"))]
    return [f"  slices that had drafts near, {'; '.join(sides)}"]


def _side(words: str, side: Row) -> str:
    mean = "" if side["mean_score"] is None else f", mean score {score(round(side['mean_score'] * 1_000_000))}"
    cost = side["cost_per_candidate_microusd"]
    each = "" if cost is None else f" at {usd(round(cost))}"
    return f"{words} (n = {side['n_slices']:,}): {side['n_candidates']:,} candidates{each}{mean}"


def _strategies(rows: list[tuple[Row, Row]]) -> Table:
    table = _table("teacher", "by", "accepted", "kept tokens", "net", "bad drafts", "", right=(4,))
    for scope, part in rows:
        lookups, bad = part["lookups"], part["bad_drafts"]
        tokens = ", ".join(f"{name} {n:,}" for name, n in lookups["kept_tokens"].items())
        rate = _bad_drafts(bad)
        state = "suspended" if part["is_suspended"] else ""
        if part["judge_refusal"]:
            state = f"the teacher judges in its place: {part['judge_refusal']}"
        by = f"{part['strategy']}: {part['judge']}" if part["judge"] else part["strategy"]
        cells = (_rate(lookups["acceptance"]), tokens, usd(lookups["net_microusd"]), rate, state)
        _add(table, _teacher(scope["teacher"]), by, *cells)
    return table


def _bad_drafts(bad: Row) -> str:
    votes = bad["other_label"]
    evidence = [f"{bad['n_audited']:,} audits"] if bad["n_audited"] else []
    evidence += [f"labels of {votes['n']:,} picks"] if votes["n"] else []
    if not evidence:
        return "not measured"
    measured = "unknown" if bad["rate_ppm"] is None else _percent(bad["rate_ppm"])
    return f"{measured} (at least {_percent(bad['low_ppm'])}), {', '.join(evidence)}"


def _verdicts(rows: list[Row]) -> Table:
    table = _table(
        "offered to", "by", "kind", "verdict", "certificate", "distance", "expected", "cost", right=(5, 6, 7)
    )
    for row in rows:
        verdict = "accepted" if row["is_accepted"] else "refused"
        _add(table, row["compile"], row["strategy"], row["kind"], verdict, row["certificate"] or "",
             _distance(row["distance_ppm"]), _percent(row["predicted_ppm"]), usd(row["cost_microusd"]))  # fmt: skip
    return table


def _console() -> Console:
    stream = raw(sys.stdout)
    console = Console(file=stream)
    return console if console.is_terminal else Console(file=stream, width=WIDTH)


def _table(*columns: str, right: tuple[int, ...] = ()) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for at, name in enumerate(columns):
        table.add_column(name, justify="right" if at in right else "left", no_wrap=name == "text")
    return table


def _add(table: Table, *cells: str) -> None:
    """Texts come from whoever wrote them: no markup in them is followed, no control character reaches the terminal."""
    table.add_row(*(Text("".join(c if c.isprintable() else " " for c in cell)) for cell in cells))


def _teacher(name: str) -> str:
    """Revisions are often digests: their beginning tells them apart."""
    return re.sub(r"@([0-9a-f]{12})[0-9a-f]{20,}", r"@\1…", name)


def _text(text: str | None) -> str:
    return "(its key is gone)" if text is None else text


def _short(text: str | None) -> str:
    whole = _text(text)
    return whole if len(whole) <= TEXT_CHARACTERS else whole[: TEXT_CHARACTERS - 1] + "…"


def _rate(rate: Row) -> str:
    if rate["rate_ppm"] is None:
        return "nothing asked about yet"
    return (
        f"{rate['k']:,} of {rate['n']:,}, {_percent(rate['rate_ppm'])} {_interval(rate['low_ppm'], rate['high_ppm'])}"
    )


def _interval(low_ppm: int | None, high_ppm: int | None) -> str:
    return "" if low_ppm is None or high_ppm is None else interval(low_ppm, high_ppm)


def _percent(share_ppm: int | None) -> str:
    return "" if share_ppm is None else percent(share_ppm)


def _break_even(share_ppm: int | None) -> str:
    """Above one no acceptance is enough."""
    return "never" if share_ppm is not None and share_ppm > 1_000_000 else _percent(share_ppm)


def _distance(distance_ppm: int | None) -> str:
    return "" if distance_ppm is None else f"{distance_ppm / 1e6:.3f}"
