"""`kolm verify`: what it loads, and the exit codes that scripts rely on."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_runners.cli.main import main
from tests.backend.domain.artifact.tiny_kolm import OTHER_KEY, receipts, small_kolm

ROOT = Path(__file__).parents[4]


def test_verify_starts_soon_and_loads_no_model_library(home: Path) -> None:
    (home / "a.kolm").write_bytes(small_kolm())
    script = (
        "import sys, time; t = time.process_time()\n"
        "from gpu_runners.cli.main import main\n"
        "code = main(['verify', 'a.kolm'])\n"
        "heavy = {'torch', 'transformers', 'numpy', 'pydantic', 'httpx'} & set(sys.modules)\n"
        "print(code, sorted(heavy), time.process_time() - t < 1.5)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env={"PYTHONPATH": str(ROOT), "KOLM_KEYRING": "keyring.json"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "0 [] True"


def test_the_exit_codes_of_verify(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, stranger = small_kolm(), small_kolm(OTHER_KEY, **receipts(key=OTHER_KEY))
    files = {"good": data, "altered": data[:-1] + b"x", "stranger": stranger, "text": b"hello"}
    for name, content in files.items():
        (home / name).write_bytes(content)
    codes = {name: main(["verify", name]) for name in files}
    assert codes == {"good": 0, "altered": 1, "stranger": 3, "text": 2}
    assert main(["verify", "missing"]) == 2
    capsys.readouterr()
    assert main(["verify", "good", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "trusted"
