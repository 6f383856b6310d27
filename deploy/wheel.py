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


def packages(project: dict[str, Any]) -> list[str]:
    """Of the packages of the project, those that the wheel holds."""
    every: list[str] = project["tool"]["setuptools"]["packages"]
    tops = ("backend.domain", "gpu_runners", "kolm")
    return [name for name in every if name == "backend" or any(f"{name}.".startswith(f"{top}.") for top in tops)]


def _copy_packages(folder: Path, project: dict[str, Any]) -> None:
    settings = project["tool"]["setuptools"]
    for name in packages(project):
        path = settings["package-dir"].get(name, name.replace(".", "/"))
        code = "__init__.py" if name == "backend" else "*.py"
        for pattern in (code, *settings["package-data"].get(name, ())):
            for source in (ROOT / path).glob(pattern):
                target = folder / source.relative_to(ROOT)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)


def _pyproject(project: dict[str, Any]) -> str:
    """The pyproject.toml of what was copied: the light part's packages, extras and command."""
    kept, settings, about = packages(project), project["tool"]["setuptools"], project["project"]
    extras = about["optional-dependencies"]
    tables: dict[str, dict[str, Any]] = {
        "build-system": project["build-system"],
        "project": {key: about[key] for key in ("name", "version", "description", "requires-python", "dependencies")},
        "project.optional-dependencies": {name: extras[name] for name in EXTRAS},
        "project.scripts": about["scripts"],
        "tool.setuptools": {"packages": kept},
        "tool.setuptools.package-dir": settings["package-dir"],
        "tool.setuptools.package-data": {n: globs for n, globs in settings["package-data"].items() if n in kept},
    }
    return "\n".join(_table(name, values) for name, values in tables.items())


def _table(name: str, values: dict[str, Any]) -> str:
    """A table of TOML: strings and lists of strings are written in TOML as they are in JSON."""
    rows = (f"{json.dumps(key)} = {json.dumps(value)}\n" for key, value in values.items())
    return f"[{name}]\n{''.join(rows)}"


if __name__ == "__main__":
    sys.exit(main())
