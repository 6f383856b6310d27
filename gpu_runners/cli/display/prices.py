"""Teachers' prices on the terminal: of an estimate in a line each, of the API's table in columns."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from backend.domain.money.teacher_prices import price_sentence
from gpu_runners.cli.display.printing import print_table

TITLES = ("at", "model", "input", "cached", "written", "output", "as of", "source")


def price_lines(estimate: Mapping[str, Any]) -> Iterator[str]:
    """Say what the estimate knows of the teacher's price, and what is doubtful about it."""
    kinds = {"teacher_price": "teacher", "fallback_price": "fallback"}
    kinds |= {"batch_price": "in batches", "batch_fallback_price": "fallback in batches", "reward_price": "reward"}
    kinds |= {"judge_price": "judge of drafts"}
    for name, kind in kinds.items():
        if estimate.get(name):
            yield f"{kind} {price_sentence(estimate[name])}"
    if estimate.get("batch_window_h"):
        hours = estimate["batch_window_h"]
        yield f"batches: each is answered within {hours} h; the compile is awaiting_batch until then"
    for warning in estimate.get("warnings") or ():
        yield f"warning: {warning}"


def print_prices(rows: Iterable[Mapping[str, Any]]) -> None:
    cells = (
        (
            row["place"],
            row["model"],
            *(row[f"{kind}_usd_per_mtok"] for kind in ("input", "cached_input", "cache_write", "output")),
            row["as_of"],
            row["source"] if row["origin"] == "vendor" else f"the operator: {row['source']}",
        )
        for row in rows
    )
    print_table(TITLES, cells, right=(2, 3, 4, 5), none="No such price. A spec may declare one: teacher.price.")
