"""The `kolm` command itself: its help, what it says to a word that it does not know, and what it loads."""

import os
import subprocess
import sys
from pathlib import Path
from shutil import which

import click
import pytest

from gpu_runners.cli.main import SECTIONS, kolm, main
from gpu_runners.kolm.client import VERSION
from tests.gpu_runners.cli.command_reference import commands

ROOT = Path(__file__).parents[3]


def test_help_comes_at_once_and_imports_no_command() -> None:
    script = (
        "import sys, time\n"
        "from gpu_runners.cli.main import main\n"
        "code = main(['--help'])\n"
        "print(time.process_time())\n"  # not the wall's: other tests run beside this one
        "names = ('gpu_runners.cli.a', 'gpu_runners.kolm', 'rich')\n"
        "print(code, sorted(name for name in sys.modules if name.startswith(names)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    *_, seconds, loaded = done.stdout.splitlines()
    assert loaded == "0 []"
    assert float(seconds) < 0.3


def test_help_has_its_sections_and_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == main(["-h"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for title, section in SECTIONS.items():
        assert f"{title}:" in lines
        assert all(any(line.startswith(f"  {name} ") for line in lines) for name in section)


def test_every_command_and_every_argument_has_its_words() -> None:
    for name, command in commands(kolm):
        assert command.help, name
        assert command.help.endswith("."), name
        assert all(param.help for param in command.params), name


def test_nothing_typed_is_a_usage_error_with_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == main(["keys"]) == 2
    out, err = capsys.readouterr()
    assert (out, "Account:" in err, "revoke" in err) == ("", True, True)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["compil"], "compile"),
        (["complie", "x.yaml"], "compile"),
        (["keys", "craete", "ci"], "create"),
        (["ls", "--stats", "failed"], "--status"),
        (["drafts", "purge", "--famly=x"], "--family"),
    ],
)
def test_a_slip_of_the_fingers_is_asked_about(words: list[str], meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Did you mean" in err
    assert f"'{meant}'" in err
    assert "Usage: kolm" in err


def test_a_word_like_none_gets_no_guess(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["xyzzy"]) == 2
    err = capsys.readouterr().err
    assert "No such command 'xyzzy'. `kolm --help` has more." in err


def test_a_value_outside_its_choices_names_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["usage", "--by", "moon"]) == 2
    assert "'day', 'step', 'sku'" in capsys.readouterr().err


def test_a_preset_and_scopes_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "create", "ci", "--preset", "ci", "--scopes", "all", "--api", "http://127.0.0.1:9"]) == 2
    assert "exclude each other" in capsys.readouterr().err


def test_the_version_is_the_client_s(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"kolm {VERSION}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert f"_KOLM_COMPLETE={shell}_complete" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("typed", "expected"),
    [("kolm comp", {"compile", "completion"}), ("kolm keys r", {"revoke"}), ("kolm usage --by s", {"step", "sku"}),
     ("kolm compile --est", {"--estimate"}), ("kolm init tick", {"tick"}), ("kolm run a.kolm --in t", {"t"})],
)  # fmt: skip
def test_words_are_completed(typed: str, expected: set[str]) -> None:
    words = typed.split(" ")
    environment = {"_KOLM_COMPLETE": "bash_complete", "COMP_WORDS": typed, "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run(
        [sys.executable, "-m", "gpu_runners.cli"], cwd=ROOT, env=os.environ | environment, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    assert {line.partition(",")[2] for line in done.stdout.split()} == expected


@pytest.mark.skipif(which("bash") is None, reason="needs bash")
def test_bash_completes_by_its_script(tmp_path: Path) -> None:
    command = tmp_path / "kolm"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m gpu_runners.cli "$@"\n')
    command.chmod(0o755)
    script = """
        eval "$(kolm completion bash)"
        COMP_WORDS=(kolm ls --sta) COMP_CWORD=2
        _kolm_completion kolm --sta ls
        echo "${COMPREPLY[*]}"
    """
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    words = ["bash", "--norc", "-c", script]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("--status\n", "")


def test_an_interrupt_has_its_own_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(_: click.Context) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(kolm, "invoke", interrupt)
    assert main(["ls"]) == 130
    assert capsys.readouterr().err == "kolm: interrupted\n"
