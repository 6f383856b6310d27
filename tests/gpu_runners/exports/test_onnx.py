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

from backend.domain.artifact.building import build_kolm
from backend.domain.artifact.kolm_verify import read_kolm
from backend.domain.canonical import canonical_json, sha256_hex
from gpu_runners.artifacts.label_model import LabelModel, Output
from gpu_runners.artifacts.loader import Loader
from gpu_runners.errors import ExportRefused
from gpu_runners.exports.encoder_student import open_label_student
from gpu_runners.exports.folder import Original
from gpu_runners.exports.to_onnx import export_onnx, write_model
from gpu_runners.models.bases import open_base
from gpu_runners.models.label_adapter import FORMAT, SCALE, Adapter, AdapterConfig, Head, to_bytes
from tests.backend.domain.artifact.tiny_kolm import KEY, fields, members
from tests.gpu_runners.small_encoders import make_encoder
from tests.gpu_runners.small_packs import label_rules
from tests.gpu_runners.small_task import LABELS, Trained, kolm_of, task_rows

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is of the extra `export`")
pytest.importorskip("onnx", reason="onnx is of the extra `export`")

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
    data = kolm_of(trained)
    return Original(kolm=read_kolm(data), sha256=sha256_hex(data))


@pytest.fixture(scope="module")
def model(original: Original) -> LabelModel:
    model = Loader(keyring=None, base_dir=None).model_of(original.kolm)
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


def random_kolm(base_dir: Path, family: str, pooling: str) -> bytes:
    """An artifact over a random encoder, with a prefix and a short cut; with a random adapter where it is a BERT."""
    base = open_base(make_encoder(base_dir / "encoder", family, pooling=pooling).name, base_dir=base_dir)
    rng = np.random.default_rng(3)

    def random(*shape: int) -> Any:
        return rng.normal(0, 0.3, shape).astype(np.float32)

    places = {"attention.self.query": 32, "output.dense": 48} if "bert" in family and family != "modernbert" else {}
    head = Head(weight=random(len(LABELS), 32), bias=random(len(LABELS)))
    adapter = Adapter(
        lora={f"encoder.layer.1.{place}": (random(4, wide), random(32, 4)) for place, wide in places.items()},
        head=head,
        baseline=head,
    )
    config = AdapterConfig(
        format=FORMAT,
        base=base.name,
        base_sha256=base.sha256,
        rank=4,
        alpha=8,
        target_modules=["dense", "query"],
        pooling=pooling,
        normalize=True,
        scale=SCALE,
        max_tokens=24,
        prefix="query: ",
    )
    content = members() | {
        "adapter.safetensors": to_bytes(adapter),
        "adapter_config.json": canonical_json(config.to_json()),
        "labels.json": canonical_json(LABELS),
        "calibration.json": canonical_json({"temperature_ppm": 700_000}),
    }
    return build_kolm(content, manifest_fields=fields(base={"id": base.name, "sha256": base.sha256}), key=KEY)


CASES = [("bert", mode) for mode in ("mean", "cls", "max", "lasttoken", "weightedmean", "mean_sqrt_len_tokens")]


@pytest.mark.parametrize(("family", "pooling"), [*CASES, ("roberta", "cls"), ("xlm-roberta", "mean")])
def test_every_pooling_prefix_and_cut_is_the_artifacts(tmp_path: Path, family: str, pooling: str) -> None:
    student = open_label_student(read_kolm(random_kolm(tmp_path, family, pooling)), base_dir=tmp_path)
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
    data = kolm_of(trained, rules=rules)
    export_onnx(Original(kolm=read_kolm(data), sha256=sha256_hex(data)), tmp_path / "out", base_dir=None, int8=False)
    assert (tmp_path / "out" / "rules.json").read_bytes() == rules
    assert "answer" in (tmp_path / "out" / "rules.mjs").read_text()
    assert "./rules.mjs" in (tmp_path / "out" / "run.mjs").read_text()


def test_an_encoder_of_another_kind_is_refused_with_what_to_use(tmp_path: Path) -> None:
    data = random_kolm(tmp_path, "modernbert", "mean")
    original = Original(kolm=read_kolm(data), sha256=sha256_hex(data))
    with pytest.raises(ExportRefused, match=r"'modernbert'.*--to peft"):
        export_onnx(original, tmp_path / "out", base_dir=tmp_path, int8=False)
    assert not (tmp_path / "out").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["encoder"]
