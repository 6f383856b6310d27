"""`kolm export --to onnx`: the graph gives the numbers that `kolm run` computes, and its runners need no kolm."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpu_runners.artifacts.label_model import LabelModel, Output
from gpu_runners.artifacts.loader import Loader
from gpu_runners.errors import ExportRefused
from gpu_runners.exports.encoder_student import open_label_student
from gpu_runners.exports.folder import Original
from gpu_runners.exports.to_onnx import export_onnx, write_model
from tests.gpu_runners.exports.students import original_of, random_label_kolm
from tests.gpu_runners.small_packs import label_rules
from tests.gpu_runners.small_task import LABELS, Trained, kolm_of, task_rows

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is of the extra `runner`")
pytest.importorskip("onnx", reason="onnx is of the extra `runner`")

N_INPUTS = 200
AWKWARD = [
    "",
    "x",
    "Wo bleibt mein Paket? Die Größe",
    "荷物はどこですか。返品",
    "refund the part " * 90,
    "  spaced   out ",
]


@pytest.fixture(scope="module")
def inputs() -> list[str]:
    rows = task_rows(N_INPUTS // len(LABELS), start=100)
    return [*AWKWARD, *(row["input"] for row in rows)][:N_INPUTS]


@pytest.fixture(scope="module")
def original(trained: Trained) -> Original:
    return original_of(kolm_of(trained))


@pytest.fixture(scope="module")
def model(original: Original) -> LabelModel:
    model = Loader(keyring=None, base_dir=None, n_texts=1).model_of(original.kolm)
    assert isinstance(model, LabelModel)
    return model


@pytest.fixture(scope="module")
def wanted(model: LabelModel, inputs: list[str]) -> list[Output]:
    return model.predict(inputs)


@pytest.fixture(scope="module")
def folder(original: Original, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("export") / "mail-onnx"
    export_onnx(original, out, base_dir=None, int8=False)
    return out


def session(model: Any) -> Any:
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])


def answers(run: Any, model: LabelModel, texts: list[str], *, at_once: int) -> dict[str, Any]:
    """Logits and probabilities of the graph for the ids of our own tokenizer, in padded batches."""
    out: dict[str, list[Any]] = {"logits": [], "probabilities": []}
    rows = model.tokenizer.ids(texts)
    for start in range(0, len(rows), at_once):
        chosen = rows[start : start + at_once]
        width = max(map(len, chosen))
        ids = np.array([[*row, *[1] * (width - len(row))] for row in chosen])
        mask = np.array([[1] * len(row) + [0] * (width - len(row)) for row in chosen])
        for name, value in zip(out, run.run(list(out), {"input_ids": ids, "attention_mask": mask}), strict=True):
            out[name] += list(value)
    return {name: np.array(value) for name, value in out.items()}


@pytest.mark.parametrize("at_once", [1, 16])
def test_the_graph_gives_the_logits_and_probabilities_of_the_artifact(
    folder: Path, model: LabelModel, inputs: list[str], wanted: list[Output], at_once: int
) -> None:
    ours = answers(session(folder / "model.onnx"), model, inputs, at_once=at_once)
    logits = np.concatenate([model.engine.logits([row]) for row in model.tokenizer.ids(inputs[:40])])
    assert np.abs(ours["logits"][:40] - logits).max() < 1e-4
    assert [LABELS[i] for i in ours["probabilities"].argmax(axis=1)] == [row["label"] for row in wanted]
    assert np.abs(ours["probabilities"].max(axis=1) - [row["confidence"] for row in wanted]).max() < 1e-4


CASES = [("bert", mode) for mode in ("mean", "cls", "max", "lasttoken", "weightedmean", "mean_sqrt_len_tokens")]


@pytest.mark.parametrize(("family", "pooling"), [*CASES, ("roberta", "cls"), ("xlm-roberta", "mean")])
def test_every_pooling_prefix_and_cut_is_the_artifacts(tmp_path: Path, family: str, pooling: str) -> None:
    student = open_label_student(original_of(random_label_kolm(tmp_path, family, pooling)).kolm, base_dir=tmp_path)
    model = student.model
    assert student.reading.prefix == "query: "
    assert 24 < student.reading.max_length < 34
    write_model(student, tmp_path / "model.onnx", artifact_sha256="0" * 64, int8=False)
    graph = session(tmp_path / "model.onnx")
    rows = model.tokenizer.ids(AWKWARD)
    assert max(map(len, rows)) == student.reading.max_length
    mask = np.array([[1] * len(row) + [0] * (student.reading.max_length - len(row)) for row in rows])
    pad = model.engine.bert.pad_id  # type: ignore[attr-defined]
    ids = np.array([[*row, *[pad] * (student.reading.max_length - len(row))] for row in rows])
    (logits,) = graph.run(["logits"], {"input_ids": ids, "attention_mask": mask})
    assert np.abs(logits - model.engine.logits(rows)).max() < 1e-4


def test_int8_is_a_quarter_of_the_size_and_answers_nearly_alike(
    original: Original, model: LabelModel, folder: Path, inputs: list[str], wanted: list[Output], tmp_path: Path
) -> None:
    export_onnx(original, tmp_path / "small", base_dir=None, int8=True)
    sizes = [(path / "model.onnx").stat().st_size for path in (tmp_path / "small", folder)]
    assert sizes[0] < 0.3 * sizes[1]
    small = answers(session(tmp_path / "small" / "model.onnx"), model, inputs, at_once=1)
    same = [LABELS[i] == row["label"] for i, row in zip(small["logits"].argmax(axis=1), wanted, strict=True)]
    assert np.mean(same) > 0.95
    assert json.loads((tmp_path / "small" / "export.json").read_text())["precision"] == "int8"


def test_the_python_runner_answers_without_kolm(folder: Path, inputs: list[str], wanted: list[Output]) -> None:
    script = "import runpy, sys; runpy.run_path(sys.argv.pop(1)); print(sorted(sys.modules))"
    command = [sys.executable, "-I", "-c", script, str(folder / "run.py"), *inputs]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder.parent)
    *lines, modules = done.stdout.splitlines()
    check_lines(lines, wanted)
    assert "'gpu_runners'" not in modules
    assert "'torch'" not in modules


def test_the_javascript_runner_answers_alike(folder: Path, inputs: list[str], wanted: list[Output]) -> None:
    packages = os.environ.get("KOLM_NODE_MODULES")
    if packages is None or shutil.which("node") is None:
        pytest.skip("KOLM_NODE_MODULES names no folder with onnxruntime-node and @huggingface/tokenizers")
    (folder.parent / "node_modules").symlink_to(packages)
    done = subprocess.run(["node", folder / "run.mjs", *inputs], capture_output=True, text=True, check=True)
    check_lines(done.stdout.splitlines(), wanted)


def check_lines(lines: list[str], wanted: list[Output]) -> None:
    rows = [line.split("\t") for line in lines]
    assert [label for label, _ in rows] == [row["label"] for row in wanted]
    confidences = np.array([float(share) for _, share in rows])
    assert np.abs(confidences - [row["confidence"] for row in wanted]).max() < 1e-4


def test_rules_go_along_as_they_are_and_answer_first_in_javascript(trained: Trained, tmp_path: Path) -> None:
    rules = label_rules(("invoice", "billing"))
    export_onnx(original_of(kolm_of(trained, rules=rules)), tmp_path / "out", base_dir=None, int8=False)
    assert (tmp_path / "out" / "rules.json").read_bytes() == rules
    assert "answer" in (tmp_path / "out" / "rules.mjs").read_text()
    assert "./rules.mjs" in (tmp_path / "out" / "run.mjs").read_text()


def test_an_encoder_of_another_kind_is_refused_with_what_to_use(tmp_path: Path) -> None:
    original = original_of(random_label_kolm(tmp_path, "modernbert", "mean"))
    with pytest.raises(ExportRefused, match=r"'modernbert'.*--to peft"):
        export_onnx(original, tmp_path / "out", base_dir=tmp_path, int8=False)
    assert not (tmp_path / "out").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["encoder"]
