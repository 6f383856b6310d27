"""`make wheel`: what it holds, and that it works in an environment that has its own dependencies and nothing else."""

import importlib.metadata
import json
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy import setup, wheel
from deploy.embedded.home import ROOT
from gpu_runners.kolm.client import VERSION
from tests.backend.domain.artifact.tiny_kolm import keyring, small_kolm

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel.build(tmp_path_factory.mktemp("dist"))


def test_the_version_is_said_once_everywhere() -> None:
    assert PROJECT["project"]["version"] == VERSION


def test_a_wheel_holds_the_light_part_whole_and_nothing_of_the_rest(built: Path) -> None:
    assert built.name == f"kolm_compiler-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(built) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert {name.split("/")[0] for name in names} == {"backend", "gpu_runners", "kolm"}
    domain = {f"backend/domain/{path.relative_to(ROOT / 'backend/domain')}" for path in sources("backend/domain")}
    assert {name for name in names if name.startswith("backend/")} == domain | {
        "backend/__init__.py",
        "backend/domain/money/prices.json",
        "backend/domain/money/vendor_prices.json",
    }
    runners = {str(path.relative_to(ROOT)) for path in sources("gpu_runners")}
    assert {name for name in names if name.startswith("gpu_runners/") and name.endswith(".py")} == runners
    assert {"kolm/__init__.py", "kolm/py.typed", "gpu_runners/tiny_base/kolm-tiny-1/model.safetensors"} <= names
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "gpu_runners").rglob("*.mjs")}
    assert {name for name in names if name.endswith(".mjs")} == modules
    assert "gpu_runners/exports/onnx/javascript/spans.mjs" in modules


@pytest.mark.nightly
def test_the_same_sources_give_the_same_bytes(built: Path, tmp_path: Path) -> None:
    assert wheel.build(tmp_path).read_bytes() == built.read_bytes()


def test_a_wheel_asks_for_the_locked_packages_and_never_for_itself_by_name(built: Path) -> None:
    with zipfile.ZipFile(built) as archive:
        metadata = archive.read(f"kolm_compiler-{VERSION}.dist-info/METADATA").decode()
    required = re.findall(r"^Requires-Dist: (.+)$", metadata, re.MULTILINE)
    assert [line for line in required if "==" not in line or line.startswith("kolm")] == []
    assert set(PROJECT["project"]["dependencies"]) == {line for line in required if "extra ==" not in line}
    assert re.findall(r"^Provides-Extra: (.+)$", metadata, re.MULTILINE) == list(wheel.EXTRAS)


@pytest.fixture(scope="module")
def environment(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and what its metadata asks for, no extra: linked from ours, so that no index is
    asked."""
    folder = tmp_path_factory.mktemp("empty")
    venv.create(folder, with_pip=False, symlinks=True)
    site = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    linked = {
        str(dist.locate_file(top)): top
        for name in closure()
        for dist in [importlib.metadata.distribution(name)]
        for top in {file.parts[0] for file in dist.files or [] if file.parts[0] not in ("..", "__pycache__")}
    }
    for source, top in linked.items():
        (site / top).symlink_to(source)
    python = str(folder / "bin" / "python")
    options = ("--disable-pip-version-check", "--no-input", "--python", python)
    pip(*options, "install", "--no-index", str(built))  # not --no-deps: what it asks for must be there
    pip(*options, "check")
    return folder


def closure() -> set[str]:
    """The wheel's own dependencies and theirs, by the metadata of what is installed here; extras left out."""
    found: set[str] = set()
    lines = list(PROJECT["project"]["dependencies"])
    while lines:
        wanted, _, marker = lines.pop().partition(";")
        name = re.split(r"[\[<>=!~ (]", wanted.strip())[0]
        if "extra" not in marker and name not in found and is_installed(name):
            found.add(name)
            lines += importlib.metadata.requires(name) or []
    return found


def is_installed(name: str) -> bool:
    try:
        importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:  # of another platform
        return False
    return True


def pip(*arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", "pip", *arguments], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr


def sources(folder: str) -> Iterator[Path]:
    return (ROOT / folder).rglob("*.py")


def run(environment: Path, *command: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    program = str(environment / "bin" / command[0])
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(cwd), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([program, *command[1:]], cwd=cwd, env=environ, capture_output=True, text=True, timeout=100)


@pytest.mark.nightly
def test_the_command_runs_there(environment: Path, tmp_path: Path) -> None:
    said = run(environment, "kolm", "--version", cwd=tmp_path)
    assert said.stdout == f"kolm {VERSION}\n", said.stderr
    python = "import importlib.metadata as m, kolm; print(m.version('kolm-compiler'), kolm.Client.__name__)"
    assert run(environment, "python", "-c", python, cwd=tmp_path).stdout == f"{VERSION} Client\n"
    done = run(environment, "kolm", "check", str(ROOT / "examples" / "refund-router.yaml"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_offline_verifier_runs_there(environment: Path, tmp_path: Path) -> None:
    (tmp_path / "good.kolm").write_bytes(small_kolm())
    (tmp_path / "bad.kolm").write_bytes(small_kolm()[:-1])
    (tmp_path / "keyring.json").write_text(json.dumps(keyring()))
    pinned = ("--keyring", str(tmp_path / "keyring.json"))
    good = run(environment, "kolm", "verify", "good.kolm", *pinned, cwd=tmp_path)
    assert (good.returncode, "trusted" in good.stdout) == (0, True), good.stdout + good.stderr
    assert run(environment, "kolm", "verify", "bad.kolm", *pinned, cwd=tmp_path).returncode in (1, 2)


def test_what_needs_an_extra_says_so_without_a_name_to_fetch_from_an_index(environment: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"id": "1", "text": "a"}\n{"id": "2", "text": "b"}\n')
    done = run(environment, "kolm", "select", "rows.jsonl", "--k", "1", cwd=tmp_path)
    assert done.returncode == 1
    assert "extra 'runner'" in done.stderr
    assert "pip install" not in done.stderr


@pytest.mark.nightly
def test_setup_takes_the_old_name_away_before_the_new_one_stands_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv.create(tmp_path, with_pip=True, symlinks=True)
    site = tmp_path / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    about = site / "kolm-0.1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.4\nName: kolm\nVersion: 0.1.0\n")
    (about / "INSTALLER").write_text("pip\n")
    (site / "__editable__.kolm-0.1.0.pth").write_text("")
    files = ("__editable__.kolm-0.1.0.pth", *(f"{about.name}/{name}" for name in ("METADATA", "INSTALLER", "RECORD")))
    (about / "RECORD").write_text("".join(f"{name},,\n" for name in files))
    monkeypatch.setattr(setup, "VENV", tmp_path)
    monkeypatch.setattr(setup, "LOG", tmp_path / "setup.log")
    setup.remove_old_name()
    assert [path.name for path in site.iterdir() if "kolm" in path.name] == []
    monkeypatch.setattr(setup, "pip", lambda *_: pytest.fail("nothing is left to take away"))
    setup.remove_old_name()


IMPORT_EVERYTHING = """
import importlib, pkgutil, backend.domain, gpu_runners, kolm
for top in (backend.domain, gpu_runners, kolm):
    for module in pkgutil.walk_packages(top.__path__, f"{top.__name__}.", onerror=lambda name: None):
        try:
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
        except ModuleNotFoundError as fault:
            print(fault.name.split(".")[0])
"""


def test_no_module_of_the_wheel_misses_one_of_ours(environment: Path, tmp_path: Path) -> None:
    done = run(environment, "python", "-c", IMPORT_EVERYTHING, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    missing = set(done.stdout.split())
    assert "torch" in missing  # the extra's, which is not here
    assert missing & {"kolm", "gpu_runners", "backend", "deploy", "workers", "migrations", "tests", "django"} == set()
