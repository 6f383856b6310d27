"""Set-up says in one sentence what is wrong with a machine."""

import ast
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from deploy import setup

SOURCE = Path(setup.__file__)


def test_an_old_python_is_told_its_version_and_what_to_do() -> None:
    run = "runpy.run_module('deploy.setup', run_name='__main__')"
    pretend = f"import sys, runpy; sys.version_info = (3, 9, 2); {run}"
    done = subprocess.run([sys.executable, "-c", pretend], cwd=setup.ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert "needs Python 3.11 or newer and this is 3.9" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_old_python_can_parse_every_file_on_the_way_to_that_sentence() -> None:
    for path in (SOURCE, SOURCE.with_name("__init__.py")):
        ast.parse(path.read_text(), feature_version=(3, 7))


def test_setup_needs_the_standard_library_only() -> None:
    tree = ast.parse(SOURCE.read_text())
    roots = {
        alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    roots |= {str(node.module).split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert roots <= sys.stdlib_module_names


def test_a_full_disk_is_found_before_anything_is_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=3 << 30))
    with pytest.raises(setup.CannotSetUp, match=r"Only 3\.0 GiB are free"):
        setup.check_space()


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "disk filled up"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", "its hash differs"),
        ("ERROR: No matching distribution found for torch==2.13.0", "No prebuilt wheel"),
        ("WARNING: Retrying after connection broken by 'NewConnectionError(...)'", "needs the network"),
        ("ERROR: something new", "something new"),
    ],
)
def test_what_pip_says_becomes_one_sentence(
    said: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\necho "{said}"\nexit 1\n')
    python.chmod(0o755)
    monkeypatch.setattr(setup, "VENV", tmp_path)
    monkeypatch.setattr(setup, "LOG", tmp_path / "setup.log")
    with pytest.raises(setup.CannotSetUp, match=expected) as fault:
        setup.pip("install", "x")
    assert "\n" not in str(fault.value)


def test_a_finished_setup_starts_no_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "VENV", tmp_path)
    calls: list[tuple[str, ...]] = []
    monkeypatch.setattr(setup, "pip", lambda *arguments: calls.append(arguments))
    monkeypatch.setattr(setup, "create_venv", lambda: None)
    monkeypatch.setattr(setup, "set_up_assets", lambda: None)
    monkeypatch.setattr(setup, "set_up_docs", lambda: None)
    setup.set_up()
    assert [call[0] for call in calls] == ["install", "install", "check", "install"]
    calls.clear()
    setup.set_up()
    assert calls == []


def test_a_setup_cut_short_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "VENV", tmp_path)
    monkeypatch.setattr(setup, "create_venv", lambda: None)

    def fail(*arguments: str) -> None:
        raise setup.CannotSetUp("no network")

    monkeypatch.setattr(setup, "pip", fail)
    with pytest.raises(setup.CannotSetUp):
        setup.set_up()
    assert setup.stamp("packages") == ""


def test_both_ways_to_an_installation_take_the_same_scripts() -> None:
    dockerfile = (setup.ROOT / "deploy" / "Dockerfile").read_text()
    for name, path in setup.VENDORED.items():
        assert f"cp node_modules/{path} vendor/{name}" in dockerfile
    assert f"backend/console/{setup.BUNDLE_OF} ./" in dockerfile
    assert f"npm run --silent bundle -- --outfile=vendor/{setup.BUNDLE}" in dockerfile


def test_the_bundle_is_made_of_packages_that_npm_s_lock_names_for_every_machine() -> None:
    package = json.loads((setup.CONSOLE / "package.json").read_text())
    locked = json.loads((setup.CONSOLE / "package-lock.json").read_text())["packages"]
    assert package["scripts"]["bundle"].split()[:3] == ["node", "node_modules/esbuild/bin/esbuild", setup.BUNDLE_OF]
    names = re.findall(r'from "([^"]+)";', (setup.CONSOLE / setup.BUNDLE_OF).read_text())
    assert names
    assert set(names) <= set(package["dependencies"])
    # a lock that npm writes beside installed packages may name those of its own machine alone
    for machine in ("linux-x64", "linux-arm64", "darwin-arm64", "darwin-x64"):
        assert "integrity" in locked[f"node_modules/@esbuild/{machine}"]
    for name, version in package["dependencies"].items():
        assert locked[f"node_modules/{name}"]["version"] == version


def test_scripts_are_fetched_again_only_when_npm_s_lock_or_the_bundle_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    console, root = tmp_path / "console", tmp_path / "root"
    (console / "static").mkdir(parents=True)
    (console / "static" / "own.css").write_text("a {}")
    for name in ("package-lock.json", "package.json", setup.BUNDLE_OF):
        (console / name).write_text("{}")
    (root / "build" / "static").mkdir(parents=True)
    (root / "build" / "static" / "staticfiles.json").write_text("{}")
    done: list[str] = []

    def fetch() -> None:
        done.append("fetched")
        (console / "vendored").mkdir(exist_ok=True)

    monkeypatch.setattr(setup, "CONSOLE", console)
    monkeypatch.setattr(setup, "ROOT", root)
    monkeypatch.setattr(setup, "VENV", tmp_path)
    monkeypatch.setattr(setup, "fetch_scripts", fetch)
    monkeypatch.setattr(setup, "run", lambda *command, **_: done.append("collected"))
    setup.set_up_assets()
    setup.set_up_assets()
    assert done == ["fetched", "collected"]
    (console / "static" / "own.css").write_text("b {}")
    setup.set_up_assets()
    (console / "package-lock.json").write_text("{ }")
    setup.set_up_assets()
    (console / setup.BUNDLE_OF).write_text("// another import")
    setup.set_up_assets()
    assert done[2:] == ["collected", "fetched", "collected", "fetched", "collected"]


def test_pages_that_cannot_be_built_stop_no_setup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\necho 'a link leads nowhere'\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(setup, "VENV", tmp_path)
    monkeypatch.setattr(setup, "LOG", tmp_path / "setup.log")
    setup.set_up_docs()
    assert "a link leads nowhere" in capsys.readouterr().out
