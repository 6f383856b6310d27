"""A compile that is waited for: lines where there is no notebook, a table of escaped texts where there is one."""

import sys
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest

from gpu_runners import kolm
from gpu_runners.kolm.progress import CompileProgress, LineDisplay, NotebookDisplay, display_here, html_of
from tests.gpu_runners.cli.api.small_api import small_api

HOSTILE = "<script>alert(1)</script>\x1b[2J"


def event(type: str, **data: Any) -> kolm.Event:
    return kolm.Event(type=type, seq=1, data=data)


def test_waiting_with_progress_prints_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with small_api() as api, kolm.Client("kolm_sk_test", api.url) as client:
        done = client.compiles.wait("cmp_1", progress=True)
    assert done.has_succeeded
    out = capsys.readouterr().out
    assert "slicing started\nslicing succeeded ($0.00012)\n" in out
    assert "warning label_skew: one label is rare" in out


def test_a_line_of_a_server_moves_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    LineDisplay(CompileProgress()).take(event("warning", code="x", message=HOSTILE))
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "<script>" in out  # text, as it was said


def test_the_table_of_a_notebook_has_no_markup_of_a_server() -> None:
    story = CompileProgress()
    story.take(event("step.started", step=HOSTILE))
    story.take(event("step.progress", step=HOSTILE, done=1, total=3, message=HOSTILE))
    story.take(event("compile.failed", message=HOSTILE))
    assert "<script" not in html_of(story)
    assert "&lt;script&gt;" in html_of(story)
    assert '<progress max="3" value="1">' in html_of(story)


@dataclass
class Notebook:
    """IPython's side: the cell's output, and how often it was drawn."""

    drawn: list[str] = field(default_factory=list)
    kernel: object = None

    def display(self, html: str, *, display_id: bool) -> "Notebook":
        self.drawn.append(html)
        return self

    def update(self, html: str) -> None:
        self.drawn.append(html)


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Notebook:
    shell = Notebook(kernel=object())
    top, drawing = ModuleType("IPython"), ModuleType("IPython.display")
    top.get_ipython = lambda: shell  # type: ignore[attr-defined]
    drawing.display, drawing.HTML = shell.display, str  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", top)
    monkeypatch.setitem(sys.modules, "IPython.display", drawing)
    return shell


def test_in_a_notebook_a_table_is_redrawn_in_the_cell(notebook: Notebook, capsys: pytest.CaptureFixture[str]) -> None:
    with small_api() as api, kolm.Client("kolm_sk_test", api.url) as client:
        client.compiles.wait("cmp_1", progress=True)
    assert capsys.readouterr().out == ""
    assert "<b>succeeded</b>" in notebook.drawn[-1]
    assert "<td>distillation</td>" in notebook.drawn[-1]
    assert 3 < len(notebook.drawn) < 15


def test_ipython_in_a_terminal_gets_lines(notebook: Notebook) -> None:
    assert isinstance(display_here(CompileProgress()), NotebookDisplay)
    notebook.kernel = None
    assert isinstance(display_here(CompileProgress()), LineDisplay)
