"""The progress of a compile that is waited for, as lines, and in a notebook as a table that is redrawn in place.
Unknown events are passed over. What a server says is shown as text: no control character of it, no markup."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from importlib import import_module
from typing import Any

from .events import Event

MARKS = {"pending": "·", "running": "…", "succeeded": "✓", "failed": "✗"}
REDRAWN_EVERY_S = 0.2
BAR = 24  # characters


def _usd(microusd: int) -> str:
    from backend.domain.number_words import usd  # when it is needed: a client that only asks stands alone

    return usd(microusd)


@dataclass(slots=True)
class StepState:
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

    steps: dict[str, StepState] = field(default_factory=dict)
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
                return self._take_step(what, self.steps.setdefault(str(data["step"]), StepState()), data)
            case ["gate", "decided"]:
                self.gate = data
                return f"gate {'passed' if data.get('passed') else 'not passed'}"
            case ["warning"]:
                return f"warning {data.get('code', '')}: {data.get('message', '')}"
        return None

    def _take_step(self, what: str, step: StepState, data: dict[str, Any]) -> str | None:
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
                cost = f" ({_usd(step.cost_microusd)})" if step.cost_microusd is not None else ""
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


class LineDisplay:
    """A line an event, at most one a second of the same step's progress: for CI, logs and pipes."""

    def __init__(self, story: CompileProgress, *, write: Callable[[str], object] | None = None) -> None:
        self.story = story
        self._write = write or _print_plain
        self._last: dict[str, float] = {}

    def take(self, event: Event) -> None:
        line = self.story.take(event)
        now = time.monotonic()
        if event.type == "step.progress":
            if now - self._last.get(str(event.data.get("step")), 0.0) < 1.0:
                return
            self._last[str(event.data.get("step"))] = now
        if line:
            self._write(line)


class NotebookDisplay:
    """The steps as a table in the cell's output."""

    def __init__(self, story: CompileProgress, display: Any, html: Any) -> None:
        """`display` and `html` are IPython's `display` and `HTML`."""
        self.story, self._html = story, html
        self._handle = display(html(""), display_id=True)
        self._drawn_at = 0.0

    def take(self, event: Event) -> None:
        line = self.story.take(event)
        now = time.monotonic()
        if line is None and event.type == "step.progress":
            return
        if event.type != "step.progress" or now - self._drawn_at >= REDRAWN_EVERY_S:
            self._drawn_at = now
            self._handle.update(self._html(html_of(self.story)))


def html_of(story: CompileProgress) -> str:
    """The state of a compile as a table; every text of the server is escaped."""
    cells = "".join(_html_row(name, step) for name, step in story.steps.items())
    failure = f"<p>{escape(story.failure)}</p>" if story.failure else ""
    return f"<p>compile: <b>{escape(story.status)}</b></p><table>{cells}</table>{failure}"


def _html_row(name: str, step: StepState) -> str:
    is_counted = step.total and step.ended_at is None
    bar = f'<progress max="{int(step.total)}" value="{int(step.done)}"></progress>' if is_counted else ""
    cost = _usd(step.cost_microusd) if step.cost_microusd is not None else ""
    texts = (MARKS.get(step.status, "·"), name, step.message, cost)
    mark, title, message, price = (escape(text) for text in texts)
    return f"<tr><td>{mark}</td><td>{title}</td><td>{bar} {message}</td><td>{price}</td></tr>"


def display_here(story: CompileProgress) -> LineDisplay | NotebookDisplay:
    """A notebook's display in a notebook, lines elsewhere; IPython is not imported, only noticed."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is not None and getattr(shell, "kernel", None) is not None:  # a kernel: not IPython in a terminal
        drawing = import_module("IPython.display")
        return NotebookDisplay(story, drawing.display, drawing.HTML)
    return LineDisplay(story)


def _print_plain(line: str) -> None:
    print("".join(char if char.isprintable() or char == "\n" else "�" for char in line), flush=True)
