"""The head of a label student as two small files, for libraries that compute an encoder's vectors and no more.

head.safetensors has weight (n_labels, width) and bias (n_labels,) in float32, head.json the labels in the order of the
rows, pooling, scale and temperature. Probabilities are softmax((scale * unit @ weight.T + bias) / temperature).
"""

import json
from pathlib import Path

from gpu_runners.exports.encoder_student import LabelStudent
from gpu_runners.models.label_adapter import SCALE
from gpu_runners.models.tensor_files import save_arrays


def write_head(student: LabelStudent, folder: Path) -> None:
    head = student.adapter.head
    arrays = {"weight": head.weight, "bias": head.bias}
    (folder / "head.safetensors").write_bytes(save_arrays(arrays, in_bf16=lambda _: False))
    described = {
        "labels": student.model.labels,
        "pooling": student.pooling.value,
        "scale": SCALE,
        "temperature": student.model.temperature,
    }
    (folder / "head.json").write_text(json.dumps(described, indent=1, ensure_ascii=False) + "\n", "utf-8")
