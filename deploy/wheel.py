"""Builds dist/kolm_compiler-VERSION-py3-none-any.whl: `make wheel`.

It holds what runs away from a deployment: the client (`import kolm`), the command, the offline verifier and a runner,
which are gpu_runners and backend.domain. Web, workers and the embedded stack are not in it: they run from a clone
(`make up`) or as images (deploy/Dockerfile), and a customer's environment gets no top-level `deploy` or `workers`.

Asks no index: setuptools comes with set-up. The same sources give the same bytes, so that a recipe can pin the hash.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
EXTRAS = ("runner", "gpu")
_EPOCH = "1767225600"  # 2026-01-01: the dates in the archive, whose file names begin no earlier than 1980


def main() -> int:
    wheel = build(DIST)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    print(f"{wheel.relative_to(ROOT)}\nsha256 {digest}")
    return 0


def build(folder: Path) -> Path:
    """The wheel, in `folder` alone of its name."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kolm-wheel-") as scratch:
        source = Path(scratch)
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())
        _copy_packages(source, project)
        (source / "pyproject.toml").write_text(_pyproject(project))
        code = f"from setuptools import build_meta; print(build_meta.build_wheel({str(folder.resolve())!r}))"
        environ = {**os.environ, "SOURCE_DATE_EPOCH": _EPOCH}
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=source, env=environ, check=True, capture_output=True, text=True
        )
    return folder / done.stdout.splitlines()[-1]


def _copy_packages(folder: Path, project: dict[str, Any]) -> None:
    """Copy the light part's packages and their data to where the project has them; kolm is among gpu_runners'."""
    data = project["tool"]["setuptools"]["package-data"]
    for top in ("backend/domain", "gpu_runners"):
        for init in (ROOT / top).rglob("__init__.py"):
            package = ".".join(init.parent.relative_to(ROOT).parts)
            for pattern in ("*.py", *data.get(package, ()), *data.get(package.removeprefix("gpu_runners."), ())):
                for source in init.parent.glob(pattern):
                    _copy(source, folder)
    _copy(ROOT / "backend" / "__init__.py", folder)


def _copy(source: Path, folder: Path) -> None:
    target = folder / source.relative_to(ROOT)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)


def _pyproject(project: dict[str, Any]) -> str:
    """The pyproject.toml of what was copied: the light part's extras and command; packages are found as ever."""
    settings, about = project["tool"]["setuptools"], project["project"]
    extras = about["optional-dependencies"]
    tables: dict[str, dict[str, Any]] = {
        "build-system": project["build-system"],
        "project": {key: about[key] for key in ("name", "version", "description", "requires-python", "dependencies")},
        "project.optional-dependencies": {name: extras[name] for name in EXTRAS},
        "project.scripts": about["scripts"],
        "tool.setuptools.packages.find": settings["packages"]["find"],
        "tool.setuptools.package-data": settings["package-data"],
    }
    return "\n".join(_table(name, values) for name, values in tables.items())


def _table(name: str, values: dict[str, Any]) -> str:
    """A table of TOML: strings, booleans and lists of strings are written in TOML as they are in JSON."""
    rows = (f"{json.dumps(key)} = {json.dumps(value)}\n" for key, value in values.items())
    return f"[{name}]\n{''.join(rows)}"


if __name__ == "__main__":
    sys.exit(main())
