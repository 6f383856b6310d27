import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.vllm import lock, setup


@pytest.mark.nightly
@pytest.mark.parametrize("constraint", ["", "torch<=2.14.1\n"], ids=["free", "constrained"])
def test_without_a_torch_wheel_for_the_cpu_set_up_says_where_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], constraint: str
) -> None:
    (tmp_path / "constraints.txt").write_text(constraint)
    monkeypatch.setenv("PIP_CONSTRAINT", str(tmp_path / "constraints.txt"))
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    monkeypatch.setattr(setup, "VENV", tmp_path / "venv")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert setup.main() == 1
    said = capsys.readouterr().err
    assert said.strip() == setup.NO_TORCH
    assert "PIP_FIND_LINKS" in said
    assert not (tmp_path / "venv" / ".kolm-packages").exists()


def test_every_locked_package_has_one_version_and_one_hash() -> None:
    lines = [line for line in setup.LOCK.read_text().splitlines() if not line.startswith("#")]
    names = [line.partition("==")[0] for line in lines]
    assert all(re.fullmatch(r"[a-z0-9.-]+==\S+ --hash=sha256:[0-9a-f]{64}", line) for line in lines)
    assert len(set(names)) == len(names)
    assert setup.VLLM in {line.partition(" ")[0] for line in lines}
    assert not lock.LEFT_OUT & set(names)


def test_the_lock_leaves_out_what_a_cpu_torch_cannot_use() -> None:
    def entry(name: str, version: str) -> dict[str, object]:
        return {
            "metadata": {"name": name, "version": version},
            "download_info": {"archive_info": {"hashes": {"sha256": "0" * 64}}},
        }

    report = json.dumps({"install": [entry("Torch", "2.13.0+cpu"), entry("triton", "3.9.0"), entry("PyYAML", "6.0.3")]})
    assert lock.lock_lines(report) == [f"pyyaml==6.0.3 --hash=sha256:{'0' * 64}"]
