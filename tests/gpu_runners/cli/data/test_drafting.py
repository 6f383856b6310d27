"""`kolm init` at a real terminal: its questions, what is asked again, and Ctrl-C at each of them."""

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from gpu_runners.cli.exit_codes import FAILED, INTERRUPTED, OK
from gpu_runners.cli.main import main

ROOT = Path(__file__).parents[4]
CTRL_C = "\x03"
LABELS = ("refund", "status")


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    code: int
    screen: str


def init_at_a_terminal(home: Path, answers: Sequence[str]) -> Talk:
    """Type an answer whenever the command waits for one; an answer of its own line ends with Enter."""
    own, theirs = pty.openpty()
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "TERM": "dumb", "HOME": str(home)}
    words = [sys.executable, "-m", "gpu_runners.cli", "init", "tickets.csv"]
    with subprocess.Popen(
        words, cwd=home, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        preexec_fn=lambda: _take_terminal(theirs),
    ) as process:  # fmt: skip
        os.close(theirs)
        screen, waiting, deadline = "", list(answers), time.monotonic() + 60
        while time.monotonic() < deadline:
            if not select.select([own], [], [], 1)[0]:
                if answers[-1] == CTRL_C and not waiting:
                    os.write(own, CTRL_C.encode())  # Python misses one that comes before it begins to wait for a key
                continue
            try:
                piece = os.read(own, 4096).decode()
            except OSError:  # Linux's end of a terminal
                break
            screen += piece
            if screen.endswith(": ") and waiting:
                answer = waiting.pop(0)
                os.write(own, answer.encode() if answer == CTRL_C else f"{answer}\n".encode())
        os.close(own)
    return Talk(code=process.returncode, screen=screen)


def _take_terminal(handle: int) -> None:
    """Make it the one whose Ctrl-C reaches the command, also where the suite is a background job that ignores it."""
    import fcntl
    import signal
    import termios

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    fcntl.ioctl(handle, termios.TIOCSCTTY, 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = (f"message {n} of a customer,{LABELS[n % 2]}" for n in range(80))
    (tmp_path / "tickets.csv").write_text("\n".join(["message,intent", *rows]))
    return tmp_path


def test_what_cannot_be_an_answer_is_asked_again(folder: Path) -> None:
    answers = ["mesage", "message", "message", "intent", "Route it.", "nobody", "demo", "-3", "2"]
    talk = init_at_a_terminal(folder, answers)
    assert talk.code == OK
    for refusal in (
        "no column 'mesage'",
        "'message' is an input already",
        "no vendor that is known",
        "no amount in US",
    ):
        assert refusal in talk.screen
    document = yaml.safe_load((folder / "tickets.yaml").read_text())
    assert (document["task"], document["budget"]) == ("Route it.", {"usd": 2})
    assert document["examples"]["columns"] == {"input": "message", "output": "intent"}


def test_a_dash_says_that_there_are_no_answers(folder: Path) -> None:
    talk = init_at_a_terminal(folder, ["", "-", "", "http://127.0.0.1:9/v1", "a-model", ""])
    assert talk.code == OK
    assert "write 40 or more examples with answers" in talk.screen
    document = yaml.safe_load((folder / "tickets.yaml").read_text())
    assert document["captures"] == {"file": "tickets.csv", "columns": {"input": "message"}}
    assert document["teacher"]["model"] == "a-model"


@pytest.mark.parametrize("question", range(5))
def test_ctrl_c_at_any_question_leaves_nothing_behind(folder: Path, question: int) -> None:
    talk = init_at_a_terminal(folder, [*["", "", "", "demo"][:question], CTRL_C])
    assert (talk.code, "Traceback" in talk.screen) == (INTERRUPTED, False)
    assert [path.name for path in folder.iterdir()] == ["tickets.csv"]


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([f"text {n},only" for n in range(60)], "nothing to learn"),
        ([f"text {n},label {n % 300}" for n in range(900)], "a spec has at most 256"),
    ],
)
def test_data_that_no_spec_can_hold_gets_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], rows: list[str], reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows.csv").write_text("\n".join(["message,intent", *rows]))
    assert main(["init", "rows.csv", "--yes", "--teacher", "demo"]) == FAILED
    assert reason in capsys.readouterr().err
    assert not Path("rows.yaml").exists()


@pytest.mark.parametrize("command", ["init", "upload"])
def test_standard_input_is_no_file_that_a_spec_could_name(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "-", *(["--dry-run"] if command == "upload" else ["--yes"])]) == FAILED
    assert "save the rows as a file" in capsys.readouterr().err
