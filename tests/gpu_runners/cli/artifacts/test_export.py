"""`kolm export`: what it refuses, and that its folder names the `.kolm` that it was made of."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from backend.domain.artifact.kolm_verify import read_kolm
from gpu_runners.cli.artifacts.export import FORMATS
from gpu_runners.cli.main import main
from gpu_runners.exports.folder import Target
from gpu_runners.models.causal_base import open_causal_base
from tests.backend.domain.artifact.tiny_kolm import small_kolm
from tests.gpu_runners.small_base import make_base
from tests.gpu_runners.small_generative import generative_kolm
from tests.gpu_runners.small_task import Trained, kolm_of

ROOT = Path(__file__).parents[4]


def test_the_folder_names_the_artifact_and_every_file_by_sha256(home: Path, trained: Trained) -> None:
    pytest.importorskip("onnx", reason="onnx is of the extra `runner`")
    data = kolm_of(trained)
    (home / "a.kolm").write_bytes(data)
    assert main(["export", "a.kolm", "--to", "onnx"]) == 0
    folder = home / "refund-router-onnx"
    sheet = json.loads((folder / "export.json").read_text())
    assert sheet["artifact"]["sha256"] == hashlib.sha256(data).hexdigest()
    kolm = read_kolm(data)
    assert sheet["artifact"]["signed_by"] == list(kolm.signers)
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    assert sheet["files"].keys() == files.keys() - {"export.json"}
    for name, listed in sheet["files"].items():
        assert hashlib.sha256(files[name].read_bytes()).hexdigest() == listed["sha256"]
    for name in ("manifest.json", "signatures.json", "receipts/00-slicing.dsse.json"):
        assert files[f"kolm/{name}"].read_bytes() == kolm.members[name]
    for name in ("labels.json", "calibration.json"):
        assert files[name].read_bytes() == kolm.members[name]


def test_an_altered_or_untrusted_file_is_not_exported(
    home: Path, trained: Trained, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "a.kolm").write_bytes(kolm_of(trained))
    (home / "b.kolm").write_bytes(kolm_of(trained)[:-1])
    assert main(["export", "b.kolm", "--to", "onnx", "--allow-untrusted"]) == 1
    (home / "keyring.json").unlink()
    assert main(["export", "a.kolm", "--to", "peft"]) == 3
    assert "--allow-untrusted" in capsys.readouterr().err
    assert sorted(path.name for path in home.iterdir()) == ["a.kolm", "b.kolm"]


def test_a_folder_that_holds_something_is_left_as_it_is(
    home: Path, trained: Trained, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "a.kolm").write_bytes(kolm_of(trained))
    (home / "out").mkdir()
    (home / "out" / "mine.txt").write_text("mine")
    (home / "file").write_text("mine")
    for taken in ("out", "file"):
        assert main(["export", "a.kolm", "--to", "onnx", "--out", taken]) == 1
        assert "name another one with --out" in capsys.readouterr().err
    assert [path.name for path in (home / "out").iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--to", "gguf"], "--to onnx"),
        (["--to", "peft", "--int8"], "--int8 is for onnx and openvino"),
        (["--to", "onnx", "--fp32"], "--fp32 is for gguf"),
    ],
)
def test_a_label_student_says_what_it_can_be_exported_to(
    home: Path, trained: Trained, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    (home / "a.kolm").write_bytes(kolm_of(trained))
    assert main(["export", "a.kolm", *arguments]) in (1, 2)
    assert words in capsys.readouterr().err
    assert not (home / "refund-router-gguf").exists()


@pytest.mark.parametrize("to", ["onnx", "sentence-transformers", "openvino"])
@pytest.mark.parametrize("task_type", ["json", "text", "label"])
def test_a_causal_student_says_what_it_can_be_exported_to(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], to: str, task_type: str
) -> None:
    make_base(home / "bases" / "small")
    monkeypatch.setenv("KOLM_BASE_DIR", str(home / "bases"))
    base = open_causal_base("small", base_dir=home / "bases")
    (home / "a.kolm").write_bytes(generative_kolm(base, task_type))
    assert main(["export", "a.kolm", "--to", to]) == 1
    assert "use --to peft or --to gguf" in capsys.readouterr().err


def test_a_library_that_is_missing_is_named_with_its_extra(home: Path, trained: Trained) -> None:
    (home / "a.kolm").write_bytes(kolm_of(trained))
    script = (
        "import sys\n"
        "sys.modules['onnx'] = None\n"
        "from gpu_runners.cli.main import main\n"
        "sys.exit(main(['export', 'a.kolm', '--to', 'onnx']))\n"
    )
    environment = {"PYTHONPATH": str(ROOT), "KOLM_KEYRING": "keyring.json"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "onnx is needed for --to onnx: install kolm with its extra 'runner'" in done.stderr
    assert not (home / "refund-router-onnx").exists()


def test_the_formats_of_the_command_are_those_that_are_written() -> None:
    assert set(FORMATS) == set(Target)


def test_a_format_that_is_none_is_a_usage_error(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "a.kolm").write_bytes(small_kolm())
    assert main(["export", "a.kolm", "--to", "torchscript"]) == 2
    assert "sentence-transformers" in capsys.readouterr().err
