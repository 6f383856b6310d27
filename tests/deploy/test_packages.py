"""The packages that are installed are the ones that are there: pyproject lists them, because one lies elsewhere."""

import tomllib

from deploy.embedded.home import ROOT

SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]


def test_every_package_is_listed_and_nothing_else() -> None:
    tops = ("backend", "workers", "gpu_runners", "migrations", "deploy")
    sources = (path for top in tops for path in (ROOT / top).rglob("*.py") if "node_modules" not in path.parts)
    there = {".".join(path.parent.relative_to(ROOT).parts) for path in sources}
    assert set(SETUPTOOLS["packages"]) == there | {"kolm"}


def test_the_client_is_imported_by_its_own_name() -> None:
    assert SETUPTOOLS["package-dir"] == {"kolm": "gpu_runners/kolm"}
    from kolm import Client

    assert Client.__module__.startswith("kolm")
