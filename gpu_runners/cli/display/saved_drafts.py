"""The saving of drafts, and which of them the teacher kept and refused, as a person reads it."""

from itertools import zip_longest
from typing import Any

from backend.domain.number_words import percent, usd
from gpu_runners.cli.display.printing import print_table
from gpu_runners.terminal_text import as_line

MAX_CHARACTERS = 80  # of a text
Row = dict[str, Any]


def saved_lines(saving: Row) -> list[str]:
    """Say what drafts saved and how many were accepted, in the API's words."""
    time = [f"teacher's time saved: {saving['time_saved']}"] if saving["time_saved"] else []
    words = saving.get("engine_summary")  # not of a server of an earlier release
    engine = [f"engine: {words}"] if words else []
    return [saving["summary"], f"accepted: {saving['accepted']}", *time, *engine]


def print_verdicts(slices: list[Row]) -> None:
    """Print slice by slice what the teacher kept, beside what it refused."""
    if not slices:
        print("The teacher was asked about no draft of this compile.")
    for part in slices:
        void = f", {part['n_void']:,} void" if part["n_void"] else ""
        print(as_line(f"{part['slice']}: {part['n_accepted']:,} kept, {part['n_refused']:,} refused{void}{_net(part)}"))
        kept, refused = ([one for one in part["drafts"] if _is_kept(one) is side] for side in (True, False))
        rows = [(*_cells(left), *_cells(right)) for left, right in zip_longest(kept, refused)]
        print_table(("expected", "kept", "expected", "refused"), rows, right=(0, 2), none="")


def _net(part: Row) -> str:
    net = part["net_microusd"]
    return "" if net is None else f", net saving {usd(net)}"


def _is_kept(draft: Row) -> bool:
    return bool(draft["verdict"] == "accepted")


def _cells(draft: Row | None) -> tuple[str, str]:
    if draft is None:
        return "", ""
    text = "(deleted since)" if draft["text"] is None else " ".join(draft["text"].split())
    short = text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…"
    return percent(draft["predicted_ppm"]), ("void: " if draft["verdict"] == "void" else "") + short
