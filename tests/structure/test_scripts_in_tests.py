"""What a script inside a test's text imports is there: no checker looks into a text, and the tests that run such
scripts are mostly nightly."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.structure.tree import ROOT

IMPORT = re.compile(
    r"(?:^|[\"' ;])(?:from|import) ((?:backend|workers|gpu_runners|deploy)(?:\.\w+)+)(?: import ([\w, ]+))?"
)
MADE_UP = {"test_measures.py", Path(__file__).name}  # what they import is their own


def imported(path: Path) -> Iterator[tuple[str, str]]:
    """(module, name) of each import in a file, wherever it stands; "" for the module itself."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if match := IMPORT.search(line):
            yield match[1], ""
            names = (name.split(" as ")[0].strip() for name in (match[2] or "").split(","))
            yield from ((match[1], name) for name in names if name)


@cache
def is_there(module: str, name: str) -> bool:
    place = ROOT / module.replace(".", "/")
    file = place.with_suffix(".py") if place.with_suffix(".py").is_file() else place / "__init__.py"
    if not name:
        return file.is_file() or place.is_dir()
    is_module = (place / f"{name}.py").is_file() or (place / name).is_dir()
    return is_module or (file.is_file() and re.search(rf"\b{name}\b", file.read_text(encoding="utf-8")) is not None)


def test_every_import_in_a_tests_text_names_what_there_is() -> None:
    files = [path for path in sorted((ROOT / "tests").rglob("*.py")) if path.name not in MADE_UP]
    assert [(str(path), pair) for path in files for pair in imported(path) if not is_there(*pair)] == []


def test_an_import_of_what_is_gone_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "test_a.py"
    file.write_text(
        'RUN = "import os; from backend.tenants import deletion"\nfrom backend.domain.ids import Prefix, x9\n'
    )
    assert list(imported(file)) == [
        ("backend.tenants", ""),
        ("backend.tenants", "deletion"),
        ("backend.domain.ids", ""),
        ("backend.domain.ids", "Prefix"),
        ("backend.domain.ids", "x9"),
    ]
    assert [is_there(*pair) for pair in imported(file)] == [True, False, True, True, False]
