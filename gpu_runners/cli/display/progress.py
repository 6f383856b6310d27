"""The view of `kolm compile` while it waits: one table on a terminal, plain lines elsewhere. The client has the state,
the lines, and the table of a notebook."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from backend.domain.number_words import duration, usd
from gpu_runners.kolm.events import Event
from gpu_runners.kolm.progress import MARKS, CompileProgress, LineDisplay
from gpu_runners.terminal_text import as_text, raw


class LiveDisplay:
    """The steps as a table that is redrawn in place; warnings scroll above it."""

    def __init__(self, story: CompileProgress) -> None:
        from rich.console import Console
        from rich.live import Live

        self.story = story
        self._console = Console(file=raw(sys.stdout))
        self.live = Live(get_renderable=self._table, console=self._console, refresh_per_second=8)

    def take(self, event: Event) -> None:
        line = self.story.take(event)
        if line and event.type == "warning":
            self._console.print(as_text(line), style="yellow", markup=False, highlight=False)

    def _table(self) -> Any:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        now = time.monotonic()
        for name, step in self.story.steps.items():
            bar = (
                ProgressBar(total=step.total, completed=step.done, width=24)
                if step.total and step.ended_at is None
                else ""
            )
            seconds = duration((step.ended_at or now) - step.started_at) if step.started_at else ""
            cost = usd(step.cost_microusd) if step.cost_microusd is not None else ""
            table.add_row(
                MARKS.get(step.status, "·"), Text(as_text(name)), bar, Text(as_text(step.message)), seconds, cost
            )
        return table


@contextmanager
def watching() -> Iterator[Callable[[Event], None]]:
    """Give a function that takes a compile's events and shows them: a table where somebody watches a terminal that can
    redraw, lines without a control character elsewhere."""
    story = CompileProgress()
    is_watched = sys.stdout.isatty() and not os.environ.get("CI") and os.environ.get("TERM") != "dumb"
    if not is_watched:
        yield LineDisplay(story, write=lambda line: print(line, flush=True)).take
        return
    display = LiveDisplay(story)
    with display.live:
        yield display.take
