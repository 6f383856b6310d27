"""The progress of `kolm select` on standard error: a bar for each stage on a terminal, elsewhere a plain line now and
then, and nothing at all where the whole run takes a moment."""

import sys
import time
from types import TracebackType
from typing import Any, Protocol, Self, TextIO

QUIET_S = 3.0  # off a terminal, nothing is said before
LINE_EVERY_S = 10.0


class SelectProgress(Protocol):
    def show(self, stage: str, done: int, total: int) -> None:
        """`total` 0: not known yet."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class LineProgress:
    """Lines for a log file."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._next_line_at = time.monotonic() + QUIET_S

    def show(self, stage: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now < self._next_line_at:
            return
        self._next_line_at = now + LINE_EVERY_S
        print(stage + (f" {done:,} of {total:,}" if total else ""), file=self._stream, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to restore."""


class BarProgress:
    """One bar that each stage takes over; it leaves the terminal as it was."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        from gpu_runners.terminal_text import as_line, raw

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        self._shown = as_line
        self._progress = Progress(*columns, console=Console(file=raw(stream)), transient=True)
        self._stage = ""
        self._task: Any = None

    def show(self, stage: str, done: int, total: int) -> None:
        if stage != self._stage:
            if self._task is not None:
                self._progress.refresh()  # a quick stage is seen to end
                self._progress.remove_task(self._task)
            self._stage, self._task = stage, self._progress.add_task(self._shown(stage), total=total or None)
        self._progress.update(self._task, completed=done, total=total or None)

    def __enter__(self) -> Self:
        self._progress.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.__exit__(kind, error, trace)


def progress_on(stream: TextIO = sys.stderr) -> SelectProgress:
    return BarProgress(stream) if stream.isatty() else LineProgress(stream)
