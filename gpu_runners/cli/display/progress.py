"""The view of `kolm compile` while it waits: one table on a terminal, plain lines elsewhere. Unknown events are passed
over."""

import sys
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from backend.domain.number_words import usd
from gpu_runners.kolm.events import Event

_MARKS = {"pending": "·", "running": "…", "succeeded": "✓", "failed": "✗"}


@dataclass(slots=True)
class Step:
    status: str = "pending"
    done: int = 0
    total: int = 0
    message: str = ""
    cost_microusd: int | None = None
    started_at: float | None = None
    ended_at: float | None = None


@dataclass(slots=True)
class CompileProgress:
    """The state of a compile after the events so far."""

    steps: dict[str, Step] = field(default_factory=dict)
    status: str = "queued"
    failure: str = ""
    gate: dict[str, Any] | None = None

    def take(self, event: Event) -> str | None:
        """Apply one event; the line that tells it, or None when it is not worth one."""
        data = event.data
        match event.type.split("."):
            case ["compile", "status"]:
                self.status = data["status"]
                return f"compile is {data['status']}"
            case ["compile", ("failed" | "canceled" | "expired" | "gate_failed" | "succeeded") as end]:
                self.status, self.failure = end, str(data.get("message") or "")
                return None
            case ["compile", "preflight"]:
                return _preflight_text(data)
            case ["step", what] if "step" in data:
                return self._take_step(what, self.steps.setdefault(str(data["step"]), Step()), data)
            case ["gate", "decided"]:
                self.gate = data
                return f"gate {'passed' if data.get('passed') else 'not passed'}"
            case ["warning"]:
                return f"warning {data.get('code', '')}: {data.get('message', '')}"
        return None

    def _take_step(self, what: str, step: Step, data: dict[str, Any]) -> str | None:
        match what:
            case "started":
                step.status, step.started_at = "running", step.started_at or time.monotonic()
                return f"{data['step']} started"
            case "progress":
                step.done, step.total, step.message = data.get("done", 0), data.get("total", 0), _progress_text(data)
                share = f" {step.done}/{step.total}" if step.total else ""
                return f"{data['step']}{share} {step.message}"
            case "retrying":
                step.message = str(data.get("message") or "trying again")
                return f"{data['step']}: {step.message}"
            case "succeeded" | "failed":
                step.status, step.ended_at, step.message = what, time.monotonic(), ""
                step.cost_microusd = data.get("cost_microusd")
                cost = f" ({usd(step.cost_microusd)})" if step.cost_microusd is not None else ""
                return f"{data['step']} {what}{cost}"
        return None


def _preflight_text(data: dict[str, Any]) -> str | None:
    """The lines that are not well, each with what to do; None where all are."""
    lines = [line for line in data.get("lines") or () if line.get("status") in ("warning", "failed")]
    texts = [
        f"preflight {line['status']}: {line['sentence']} {line.get('what_to_do') or ''}".rstrip() for line in lines
    ]
    return "\n".join(texts) or None


def _progress_text(data: dict[str, Any]) -> str:
    parts = [str(data.get("message") or "")]
    if data.get("loss") is not None:
        parts.append(f"loss {data['loss']:.3f}")
    if data.get("eta_s"):
        parts.append(f"{data['eta_s']:.0f} s left")
    return ", ".join(part for part in parts if part)


class PlainDisplay:
    """A line an event, at most one a second of the same step's progress."""

    def __init__(self, story: CompileProgress) -> None:
        self.story = story
        self._last: dict[str, float] = {}

    def take(self, event: Event) -> None:
        line = self.story.take(event)
        now = time.monotonic()
        if event.type == "step.progress":
            if now - self._last.get(str(event.data.get("step")), 0.0) < 1.0:
                return
            self._last[str(event.data.get("step"))] = now
        if line:
            print(line, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to restore."""


class LiveDisplay:
    """The steps as a table that is redrawn in place; warnings scroll above it."""

    def __init__(self, story: CompileProgress) -> None:
        from rich.console import Console
        from rich.live import Live

        from gpu_runners.terminal_text import raw

        self.story = story
        self._console = Console(file=raw(sys.stdout))
        self._live = Live(get_renderable=self._table, console=self._console, refresh_per_second=8)

    def take(self, event: Event) -> None:
        from gpu_runners.terminal_text import as_text

        line = self.story.take(event)
        if line and event.type == "warning":
            self._console.print(as_text(line), style="yellow", markup=False, highlight=False)

    def _table(self) -> Any:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        from gpu_runners.terminal_text import as_text

        table = Table.grid(padding=(0, 2))
        now = time.monotonic()
        for name, step in self.story.steps.items():
            bar = (
                ProgressBar(total=step.total, completed=step.done, width=24)
                if step.total and step.ended_at is None
                else ""
            )
            seconds = f"{(step.ended_at or now) - step.started_at:.1f} s" if step.started_at else ""
            cost = usd(step.cost_microusd) if step.cost_microusd is not None else ""
            table.add_row(
                _MARKS.get(step.status, "·"), Text(as_text(name)), bar, Text(as_text(step.message)), seconds, cost
            )
        return table

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)


def display_for(story: CompileProgress) -> PlainDisplay | LiveDisplay:
    return LiveDisplay(story) if sys.stdout.isatty() else PlainDisplay(story)
