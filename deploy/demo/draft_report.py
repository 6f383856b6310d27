"""Tables of what drafts saved, from the API's answers. `make demo` shows a figure, `make demo-drafts` texts too."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from deploy.demo import demo_report
from deploy.demo.demo_report import seconds, signed_usd, usd

LAST_STEP = "selection"  # what it did not pick are the drafts
N_TEXTS = 3
WORDS = {
    "judge": "the teacher says which of them it would have written",
    "repeat": "written for this very prompt, so exact, and nothing is asked",
    "not worth": "asking would cost more than writing afresh",
}
BEST_CASE = (
    "This is the best case. The teacher is a grammar: it writes each slice's texts by rules, and as a judge accepts\n"
    "exactly what those rules can write, so it never errs; and slices of two labels have almost no text in common.\n"
    "A language model refuses some of its own drafts and accepts some of others': docs/benchmarks/drafts.md.\n"
)
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two compiles of a task, the second with the drafts of the first: each as the API shows it, with its steps; the
    family's `stats`; `asked`, the second one's drafts by slice (None where this API does not list them); and the mean
    tokens of a candidate."""

    first: Row
    first_steps: Sequence[Row]
    second: Row
    second_steps: Sequence[Row]
    slices: Sequence[Row]
    stats: Row
    asked: Sequence[Row] | None
    mean_tokens: float

    @property
    def saving(self) -> Row:
        return saving_of(self.second, self.slices, self.second_steps)

    @property
    def acceptance(self) -> Row:
        """k of n with the exact interval; of the family, where the compile does not say: nothing else looked in it."""
        acceptance: Row = self.saving.get("acceptance") or self.stats["lookups"]["acceptance"]
        return acceptance


def saving_of(compile: Row, slices: Sequence[Row], steps: Sequence[Row]) -> Row:
    """The compile's own figure; of an API that has none, the sum of its slices beside what their writing was billed."""
    own: Row | None = compile.get("drafts")
    if own is not None:
        return own
    savings = [row["drafts"]["saving"] for row in slices if row["drafts"] is not None and row["drafts"]["saving"]]
    net = sum(saving["net_microusd"] for saving in savings)
    without = spent_on_slices(steps) + net
    return {
        "net_microusd": net,
        "net_share_ppm": round(1e6 * net / without) if without > 0 else None,
        "without_drafts_microusd": without,
        "teacher_ms_saved": None,
    }


def saving_line(saving: Row) -> str:
    share = saving["net_share_ppm"]
    part = "" if share is None else f", {share / 1e4:.1f} % of {usd(saving['without_drafts_microusd'])} without drafts"
    return f"{signed_usd(saving['net_microusd'])}{part}"


def acceptance_line(rate: Row) -> str:
    """Write k of n with the 95 % interval."""
    if not rate["n"]:
        return "the teacher was asked about no draft"
    low, high = (rate[f"{bound}_ppm"] / 1e4 for bound in ("low", "high"))
    return f"{rate['k']} of {rate['n']}, {rate['k'] / rate['n']:.1%} [{low:.1f}, {high:.1f}] at 95 %"


def of_pair(pair: Pair) -> Text:
    """Write acceptance, money and time of the second compile beside the first."""
    saving, text = pair.saving, Text()
    text.append(f"{pair.second['name']}: messages of {pair.mean_tokens:.0f} tokens on the mean\n", style="bold")
    text.append(f"acceptance     {acceptance_line(pair.acceptance)}\n")
    text.append(f"net saving     {saving_line(saving)}\n")
    if saving["teacher_ms_saved"] is not None:
        text.append(f"teacher's time {saving['teacher_ms_saved'] / 1e3:.1f} s less than without drafts\n")
    return text


def side_by_side(asked: Sequence[Row] | None) -> Table | Text:
    """Tabulate some texts that the teacher kept beside some that it refused, from as many slices as there are."""
    if asked is None:
        return Text("This API does not list the drafts of a compile: no texts to show.\n", style="dim")
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
        title="up to the selection, first and next version", title_justify="left", title_style="bold", box=box.SIMPLE
    )
    table.add_column("task", no_wrap=True)
    for heading in ("tokens", "first", "next", "accepted", "saving", "seconds"):
        table.add_column(heading, justify="right")
    for pair in pairs:
        both, rate, share = (pair.first_steps, pair.second_steps), pair.acceptance, pair.saving["net_share_ppm"]
        table.add_row(
            pair.second["name"],
            f"{pair.mean_tokens:.0f}",
            *(usd(spent_on_slices(steps)) for steps in both),
            f"{rate['k']}/{rate['n']}",
            "-" if share is None else f"{share / 1e4:.1f} %",
            " / ".join(
                seconds(step_of(steps, "slicing")["started_at"], step_of(steps, LAST_STEP)["ended_at"])
                for steps in both
            ),
        )
    return table


def summary(compile: Row, slices: Sequence[Row], steps: Sequence[Row]) -> Text:
    """Write the acceptance and the net saving of the whole compile."""
    ledgers = [row["drafts"] for row in slices if row["drafts"] is not None]
    offered, accepted = (sum(each[name] for each in ledgers) for name in ("offered", "accepted"))
    text = Text()
    rate = f"{accepted / offered:.1%} of {offered} drafts accepted" if offered else "no draft was worth offering"
    text.append(f"acceptance  {rate}\n", style="bold")
    text.append(f"net saving  {saving_line(saving_of(compile, slices, steps))}\n", style="bold")
    for how in sorted({demo_report.how_of(each) for each in ledgers} & WORDS.keys()):
        text.append(f"            {how}: {WORDS[how]}\n", style="dim")
    return text


def spent_on_slices(steps: Sequence[Row]) -> int:
    """The micro-dollars of the steps up to the selection, in whichever of them drafts are verified."""
    last = step_of(steps, LAST_STEP)["position"]
    return sum(step["spent_microusd"] for step in steps if step["position"] <= last)


def step_of(steps: Sequence[Row], name: str) -> Row:
    return next(step for step in steps if step["name"] == name)
