"""The client by itself: importable under its own name, without the rest of the repository, and cheap to load."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from gpu_runners import kolm

SOURCE = Path(kolm.__file__).parent


def test_it_stands_alone_as_the_package_kolm(tmp_path: Path) -> None:
    shutil.copytree(SOURCE, tmp_path / "kolm", ignore=shutil.ignore_patterns("__pycache__"))
    script = (
        "import json, sys, kolm\n"
        "kolm.Client('k', 'https://kolm.example').close()\n"
        "others = {'backend', 'gpu_runners', 'pandas', 'yaml', 'numpy', 'pydantic'}\n"
        "print(json.dumps(sorted(others & set(sys.modules))))\n"
    )
    variables = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path), "HOME": str(tmp_path)}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def test_it_is_typed_and_names_what_it_gives_out() -> None:
    assert (SOURCE / "py.typed").exists()
    assert all(hasattr(kolm, name) for name in kolm.__all__)
    assert kolm.__all__ == sorted(kolm.__all__, key=lambda name: (not name.isupper(), name[0].islower(), name))
