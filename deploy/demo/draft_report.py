"""Tables of what drafts saved, from the API's answers. `make demo` shows a figure, `make demo-drafts` texts too."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from backend.domain.number_words import duration, percent
from deploy.demo.demo_report import seconds, usd

LAST_STEP = "selection"  # what it did not pick are the drafts
N_TEXTS = 3
BEST_CASE = (
    "This is the best case. The teacher is a grammar: it writes each slice's texts by rules, and as a judge accepts\n"
    "exactly what those rules can write, so it never errs; and slices of two labels have almost no text in common.\n"
    "A language model refuses some of its own drafts and accepts some of others': docs/benchmarks/draft-pool.md.\n"
)
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two compiles of a task, the second with the drafts of the first: the steps of both, the second as the API shows
    it, the drafts that the teacher was `asked` about for it, by slice, and the mean tokens of its candidates."""

    first_steps: Sequence[Row]
    second: Row
    second_steps: Sequence[Row]
    asked: Sequence[Row]
    mean_tokens: float

    @property
    def saving(self) -> Row:
        saving: Row = self.second["drafts"]
        return saving


def of_pair(pair: Pair) -> Text:
    """Write what the drafts of the first compile saved the second, in the API's words."""
    saving, text = pair.saving, Text()
    text.append(f"{pair.second['name']}: messages of {pair.mean_tokens:.0f} tokens on the mean\n", style="bold")
    text.append(f"drafts         {saving['summary']}\n")
    text.append(f"accepted       {saving['accepted']}\n")
    if saving["teacher_ms_saved"] is not None:
        text.append(f"teacher's time {duration(saving['teacher_ms_saved'] / 1e3)} less than without drafts\n")
    return text


def side_by_side(asked: Sequence[Row]) -> Table:
    """Tabulate some texts that the teacher kept beside some that it refused, from as many slices as there are."""
    kept, refused = (_texts(asked, verdict) for verdict in ("accepted", "refused"))
    table = Table(title="what the teacher said of drafts", title_justify="left", title_style="bold", box=box.SIMPLE)
    table.add_column("kept", ratio=1)
    table.add_column("refused", ratio=1)
    for i in range(max(len(kept), len(refused))):
        table.add_row(*(texts[i] if i < len(texts) else "" for texts in (kept, refused)))
    return table


def _texts(asked: Sequence[Row], verdict: str) -> list[str]:
    """Pick up to N_TEXTS, one a slice as long as there are other slices."""
    of_slices = [
        [f"{part['slice']}: {row['text']}" for row in part["drafts"] if row["verdict"] == verdict and row["text"]]
        for part in asked
    ]
    turns = (texts[i] for i in range(N_TEXTS) for texts in of_slices if i < len(texts))
    return list(itertools.islice(turns, N_TEXTS))


def comparison(pairs: Sequence[Pair]) -> Table:
    """Tabulate the pairs, one a row."""
    table = Table(
        title="up to the selection, first and next version",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE,
        padding=(0, 1, 0, 0),
    )
    table.add_column("task")
    for heading in ("tokens", "first", "time", "next", "time", "accepted", "saving"):
        table.add_column(heading, justify="right", no_wrap=True)
    for pair in pairs:
        saving = pair.saving
        rate, share = saving["acceptance"], saving["net_share_ppm"]
        table.add_row(
            pair.second["name"],
            f"{pair.mean_tokens:.0f}",
            *up_to_selection(pair.first_steps),
            *up_to_selection(pair.second_steps),
            f"{rate['k']}/{rate['n']}",
            "-" if share is None else percent(share),
        )
    return table


def up_to_selection(steps: Sequence[Row]) -> tuple[str, str]:
    """Write money and time of the steps up to the selection, in whichever of them drafts are verified."""
    first, last = step_of(steps, "slicing"), step_of(steps, LAST_STEP)
    spent = sum(step["spent_microusd"] for step in steps if step["position"] <= last["position"])
    return usd(spent), seconds(first["started_at"], last["ended_at"])


def step_of(steps: Sequence[Row], name: str) -> Row:
    return next(step for step in steps if step["name"] == name)
