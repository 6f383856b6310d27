"""The heads of a student as two small files, for libraries that compute an encoder and no more.

Of a label student, head.safetensors has weight (n_labels, width) and bias (n_labels,) in float32, head.json the labels
in the order of the rows, pooling, scale and temperature. Probabilities are
softmax((scale * unit @ weight.T + bias) / temperature).

Of a span student, heads.safetensors has `<head>.weight` (rows, width) and `<head>.bias` (rows,) in float32, heads.json
the heads of tokens and of classes, pooling and scale. Logits of a token are state @ weight.T + bias, those of a class
scale * unit @ weight.T + bias. `kinds` (N_KINDS, width), where it is there, is added to the embeddings of the words by
the kinds of their tokens, which kinds.py counts.
"""

import json
from pathlib import Path

from backend.domain.encoders.sentence_settings import Pooling
from gpu_runners.exports.encoder_student import LabelStudent
from gpu_runners.exports.onnx.runners import copy_module
from gpu_runners.exports.span_student import SpanStudent
from gpu_runners.models.label_adapter import SCALE
from gpu_runners.models.spans import kinds
from gpu_runners.models.spans.adapter import CLASSES
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


def write_span_heads(student: SpanStudent, folder: Path) -> None:
    heads = student.adapter.heads
    arrays = {f"{name}.weight": head.weight for name, head in heads.items()}
    arrays |= {f"{name}.bias": head.bias for name, head in heads.items()}
    added = student.adapter.added_kinds()
    if added is not None:
        arrays["kinds"] = added
        copy_module(kinds, folder)
    (folder / "heads.safetensors").write_bytes(save_arrays(arrays, in_bf16=lambda _: False))
    described = {
        "tokens": [name for name in heads if not name.startswith(CLASSES)],
        "classes": [name for name in heads if name.startswith(CLASSES)],
        "pooling": Pooling.MEAN.value,
        "scale": SCALE,
    }
    (folder / "heads.json").write_text(json.dumps(described, indent=1) + "\n", "utf-8")
