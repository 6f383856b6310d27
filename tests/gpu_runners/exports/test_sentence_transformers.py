"""`kolm export --to sentence-transformers`: SentenceTransformer(folder) gives the student's unit vectors."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from sentence_transformers import SentenceTransformer

from gpu_runners.artifacts.label_model import LabelModel
from gpu_runners.artifacts.loader import Loader
from gpu_runners.exports.to_sentence_transformers import export_sentence_transformers
from tests.gpu_runners.exports.students import original_of, random_label_kolm
from tests.gpu_runners.small_task import Trained, kolm_of, task_rows

TEXTS = ["", "where is my parcel", "refund it " * 60, *(row["input"] for row in task_rows(5, start=50))]
CASES = [
    ("trained", ""),
    ("bert", "mean"),
    ("bert", "cls"),
    ("bert", "max"),
    ("roberta", "mean"),
    ("modernbert", "cls"),
]


@pytest.mark.parametrize(("family", "pooling"), CASES)
def test_its_vectors_under_the_head_are_the_artifacts_logits(
    trained: Trained, tmp_path: Path, family: str, pooling: str
) -> None:
    data = kolm_of(trained) if family == "trained" else random_label_kolm(tmp_path, family, pooling)
    original, out = original_of(data), tmp_path / "out"
    export_sentence_transformers(original, out, base_dir=tmp_path)
    vectors = SentenceTransformer(str(out), device="cpu").encode(TEXTS, show_progress_bar=False)
    assert np.abs(np.linalg.norm(vectors, axis=1) - 1).max() < 1e-5
    head, described = load_file(out / "head.safetensors"), json.loads((out / "head.json").read_text())
    model = Loader(keyring=None, base_dir=tmp_path, n_texts=1).model_of(original.kolm)
    assert isinstance(model, LabelModel)
    wanted = np.concatenate([model.engine.logits([row]) for row in model.tokenizer.ids(TEXTS)])
    assert np.abs(described["scale"] * vectors @ head["weight"].T + head["bias"] - wanted).max() < 1e-4
