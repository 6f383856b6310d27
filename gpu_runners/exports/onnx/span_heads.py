"""A span student as one ONNX model: token ids to the logits of its heads, for one window of tokens a row."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from backend.domain.encoders.sentence_settings import Pooling
from gpu_runners.models.label_adapter import SCALE, Head
from gpu_runners.models.numpy_bert import NumpyBert
from gpu_runners.models.onnx.encoder import encoder_body, linear, pool_rows, token_inputs, unit_rows
from gpu_runners.models.onnx.graph import Dims, Graph
from gpu_runners.models.spans.adapter import CLASSES
from gpu_runners.models.tensor_files import Array

if TYPE_CHECKING:
    from onnx import ModelProto

TOKEN_KINDS = "token_kinds"


def span_model(
    bert: NumpyBert,
    heads: Mapping[str, Head],
    *,
    metadata: Mapping[str, str],
    kinds: Array | None = None,
    int8_words: bool = False,
) -> "ModelProto":
    """`input_ids`, `attention_mask` and, where there are `kinds` (N_KINDS, width), `token_kinds` to one output a head:
    (batch, length, rows) of the heads of tokens, padding and special tokens among them, (batch, rows) of the heads of
    classes, as `SpanForward` computes them for one window. `bert` has the adapter in its weights. Raises
    ExportRefused."""
    graph = Graph()
    tokens = token_inputs(graph)
    added = None
    if kinds is not None:
        numbers = graph.input(TOKEN_KINDS, ["batch", "length"])
        added = graph.add("Gather", graph.weight("kinds", kinds), numbers, name="kinds.rows")
    hidden = encoder_body(graph, bert, tokens, int8_words=int8_words, added=added)
    is_of_classes = {name: name.startswith(CLASSES) for name in heads}
    unit = unit_rows(graph, pool_rows(graph, hidden, tokens, Pooling.MEAN)) if any(is_of_classes.values()) else ""
    for name, head in heads.items():
        n_rows = len(head.bias)
        if is_of_classes[name]:
            dims: Dims = ["batch", n_rows]
            logits = linear(graph, unit, name, head.weight * np.float32(SCALE), head.bias)
        else:
            dims = ["batch", "length", n_rows]
            logits = linear(graph, hidden, name, head.weight, head.bias)
        graph.output(name, dims, logits)
    return graph.model(metadata)
