"""`kolm export --to openvino`, where OpenVINO is installed: it gives the numbers of the artifact."""

from pathlib import Path

import numpy as np
import pytest

from gpu_runners.artifacts.label_model import LabelModel
from gpu_runners.artifacts.loader import Loader
from gpu_runners.artifacts.span_model import SpanModel
from gpu_runners.exports.to_openvino import export_openvino
from tests.gpu_runners.exports.students import original_of, random_label_kolm
from tests.gpu_runners.small_spans import TrainedSpans, span_kolm, span_pairs
from tests.gpu_runners.small_task import Trained, kolm_of, task_rows

openvino = pytest.importorskip("openvino", reason="openvino is an extra that no lock has")
pytest.importorskip("onnx", reason="onnx is of the extra `runner`")

TEXTS = ["", "where is my parcel", "refund it " * 60, *(row["input"] for row in task_rows(10, start=50))]


@pytest.mark.parametrize(("family", "pooling"), [("trained", ""), ("bert", "lasttoken"), ("roberta", "max")])
def test_openvino_gives_the_logits_of_the_artifact(trained: Trained, tmp_path: Path, family: str, pooling: str) -> None:
    data = kolm_of(trained) if family == "trained" else random_label_kolm(tmp_path, family, pooling)
    original, out = original_of(data), tmp_path / "out"
    export_openvino(original, out, base_dir=tmp_path, int8=False)
    model = Loader(keyring=None, base_dir=tmp_path, n_texts=1).model_of(original.kolm)
    assert isinstance(model, LabelModel)
    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
    compiled = openvino.Core().compile_model(out / "model.xml", "CPU", settings)
    for ids in model.tokenizer.ids(TEXTS):
        row = np.array([ids])
        logits = compiled({"input_ids": row, "attention_mask": np.ones_like(row)})["logits"]
        assert np.abs(logits - model.engine.logits([ids])).max() < 1e-4
    assert not (out / "model.onnx").exists()


def test_openvino_gives_the_logits_of_a_span_student(trained_spans: TrainedSpans, tmp_path: Path) -> None:
    original, out = original_of(span_kolm(trained_spans)), tmp_path / "out"
    export_openvino(original, out, base_dir=None, int8=False)
    model = Loader(keyring=None, base_dir=None, n_texts=1).model_of(original.kolm)
    assert isinstance(model, SpanModel)
    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
    compiled = openvino.Core().compile_model(out / "model.xml", "CPU", settings)
    tokens = model.tokenizer.read(["", *(text for text, _ in span_pairs(40))])
    for one, wanted in zip(tokens, model.forward.logits(tokens), strict=True):
        row = np.array([one.windows[0].ids])
        kinds = np.array([one.windows[0].kinds])
        ours = compiled({"input_ids": row, "attention_mask": np.ones_like(row), "token_kinds": kinds})
        for name, value in wanted.items():
            own = ours[name][0, 1:-1] if value.ndim == 2 else ours[name][0]
            assert np.abs(own - value).max(initial=0) < 1e-4
    assert (out / "schema.json").exists()
