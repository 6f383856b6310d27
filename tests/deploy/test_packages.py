"""The packages that are installed are the ones that are there, and one of them under a second name."""

import tomllib

from setuptools.config.expand import find_packages

from deploy.embedded.home import ROOT

FIND = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]


def test_every_folder_with_code_is_installed_and_nothing_else() -> None:
    tops = ("backend", "workers", "gpu_runners", "migrations", "deploy")
    sources = (path for top in tops for path in (ROOT / top).rglob("*.py") if "node_modules" not in path.parts)
    there = {".".join(path.parent.relative_to(ROOT).parts) for path in sources}
    assert set(find_packages(**FIND, root_dir=ROOT)) == there | {"kolm", "kolm.asynchronous"}


def test_the_client_is_imported_by_its_own_name() -> None:
    package_dir: dict[str, str] = {}
    find_packages(**FIND, root_dir=ROOT, fill_package_dir=package_dir)
    assert package_dir == {"kolm": "gpu_runners/kolm"}
    from kolm import Client

    assert Client.__module__.startswith("kolm")
