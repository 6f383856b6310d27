"""Answers on a terminal: in colours, the copied places of the input too, and no character of a stranger's in them."""

import re
from typing import Any

import pytest

from gpu_runners.cli.display.answers import line_of, print_answer

SGR = re.compile(r"\x1b\[[0-9;]*m")  # colours, and nothing that moves the cursor
HOSTILE = "a\x1b]0;PWN\x07\x1b[2J\u202egnp\r[bold]"
LABEL = {"label": "refund", "confidence": 0.91, "latency_us": 5_000}
SURE = {"path": "/city", "start": 6, "end": 12, "confidence_ppm": 990_000}
DOUBTED = {"path": "/when", "start": 13, "end": 18, "confidence_ppm": 410_000}
SPANS = {"output": '{"city": "Berlin"}', "finish_reason": "stop", "confidence": 0.4, "fields": [SURE, DOUBTED]}


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """The text of an answer as a terminal gets it."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("NO_COLOR", raising=False)

    def act(text: str, output: dict[str, Any]) -> str:
        monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
        print_answer(text, output, is_drawn=True)
        return capsys.readouterr().out

    return act


def test_a_label_is_coloured_and_says_what_the_line_says(drawn: Any) -> None:
    out = drawn("where is my refund", LABEL)
    assert out.startswith("\x1b[1;32mrefund")
    assert SGR.sub("", out).strip() == line_of(LABEL)
    assert drawn("?", LABEL | {"is_unsure": True}).startswith("\x1b[1;33mrefund")


def test_the_places_that_were_copied_stand_out_in_the_input(drawn: Any) -> None:
    answer, marked = drawn("a for Berlin today", SPANS).splitlines()
    assert SGR.sub("", answer) == line_of(SPANS)
    assert SGR.sub("", marked) == "  a for Berlin /city today /when"
    assert re.search(r"\x1b\[1;4;32mBerlin", marked)
    assert re.search(r"\x1b\[1;4;33mtoday", marked)


@pytest.mark.parametrize(
    "output",
    [
        LABEL | {"label": HOSTILE},
        SPANS | {"output": HOSTILE},
        SPANS | {"fields": [SURE | {"path": HOSTILE}]},
        SPANS | {"fields": [SURE | {"start": -1, "end": 10**9}]},
    ],
)
def test_nothing_that_a_stranger_wrote_acts_on_the_terminal(drawn: Any, output: dict[str, Any]) -> None:
    out = SGR.sub("", drawn(HOSTILE * 3, output))
    assert not set(out) & {"\x1b", "\x07", "\r", "\u202e"}
    assert "[bold]" in out


def test_where_nobody_looks_there_is_the_plain_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_answer("a for Berlin today", SPANS, is_drawn=False)
    assert capsys.readouterr().out == '{"city": "Berlin"}  0.400  unsure of /when 0.410\n'
