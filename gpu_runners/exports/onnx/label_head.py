"""A label student as one ONNX model: token ids to logits and calibrated probabilities."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from backend.domain.encoders.sentence_settings import Pooling
from gpu_runners.models.label_adapter import SCALE, Head
from gpu_runners.models.numpy_bert import NumpyBert
from gpu_runners.models.onnx.encoder import encoder_body, linear, pool_rows, token_inputs, unit_rows
from gpu_runners.models.onnx.graph import Graph

if TYPE_CHECKING:
    from onnx import ModelProto


def label_model(
    bert: NumpyBert,
    head: Head,
    *,
    pooling: Pooling,
    temperature: float,
    metadata: Mapping[str, str],
    int8_words: bool = False,
) -> "ModelProto":
    """`input_ids` and `attention_mask` to `logits` and `probabilities`, (batch, n_labels); softmax of the logits at the
    temperature. `bert` has the adapter in its weights. Raises ExportRefused."""
    graph = Graph()
    tokens = token_inputs(graph)
    hidden = encoder_body(graph, bert, tokens, int8_words=int8_words)
    unit = unit_rows(graph, pool_rows(graph, hidden, tokens, pooling))
    logits = linear(graph, unit, "head", head.weight * np.float32(SCALE), head.bias)
    cooled = graph.add("Div", logits, graph.constant(np.float32(temperature)), name="head.cooled")
    dims: list[int | str] = ["batch", len(head.bias)]
    graph.output("logits", dims, logits)
    graph.output("probabilities", dims, graph.add("Softmax", cooled, name="head.shares", axis=-1))
    return graph.model(metadata)
