"""A plain BERT or RoBERTa base by ONNX Runtime: two thirds of numpy's time a text, after 0.2 s more at the
start.

The session computes the layers; tokens are embedded and states pooled in numpy, so that every student of a base shares
its tables. One thread, in the order of the graph, without an arena: a session keeps its weights (once, packed) and
nothing of the texts that it saw. The same input gives the same numbers each time.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from backend.domain.encoders.sentence_settings import Pooling
from gpu_runners.config import EncoderEngine, encoder_engine
from gpu_runners.models.bases import Base
from gpu_runners.models.encoder_runtimes import Runtime, check_width, head_logits, load_runtime
from gpu_runners.models.encoder_tokens import pad
from gpu_runners.models.label_adapter import Adapter, AdapterConfig, Head, deltas, lora_deltas
from gpu_runners.models.numpy_bert import NumpyBert, can_run, mask_bias, unit_rows
from gpu_runners.models.onnx.encoder import encoder_layers
from gpu_runners.models.onnx.graph import BUFFER, Graph
from gpu_runners.models.tensor_files import Array

ONNX_FROM = 100  # texts, of which each saves 3 to 6 ms: what imports and the session cost is then won back


def answering_runtime(base: Base, *, n_texts: int | None = None) -> Runtime:
    """The runtime for about `n_texts` texts, None: as many as come. ONNX Runtime where that pays, the base is a plain
    one and the packages are here, unless KOLM_ENCODER_ENGINE says otherwise. Raises BadSetting."""
    engine = encoder_engine()
    is_worth_it = engine is EncoderEngine.ONNX or n_texts is None or n_texts >= ONNX_FROM
    if engine is EncoderEngine.NUMPY or not is_worth_it or not can_run(base):
        return load_runtime(base)
    return OnnxRuntime(base)


class OnnxRuntime:
    def __init__(self, base: Base) -> None:
        self._bert = NumpyBert.load(base)

    def engine(self, adapter: Adapter, config: AdapterConfig) -> "OnnxEngine":
        check_width(adapter.head, self._bert.width)
        body = OnnxBody(self._bert.with_deltas(deltas(adapter, config)))
        return OnnxEngine(body, adapter.head, config.pooling)

    def body(self, lora: Mapping[str, tuple[Array, Array]], *, rank: int, alpha: int) -> "OnnxBody":
        return OnnxBody(self._bert.with_deltas(lora_deltas(lora, rank=rank, alpha=alpha)))

    def embed(self, rows: Sequence[Sequence[int]], *, pooling: str) -> Array:
        return self._bert.embed(rows, Pooling(pooling))


class OnnxBody:
    """`bert` has the adapter in its weights; of them, its tables alone are kept."""

    name, device = "onnx", "cpu"

    def __init__(self, bert: NumpyBert) -> None:
        self._session, self._tables, self.width = open_session(bert), bert.without_layers(), bert.width

    def states(self, rows: Sequence[Sequence[int]], added: Sequence[Array] | None = None) -> Array:
        return self.masked_states(rows, added)[0]

    def masked_states(self, rows: Sequence[Sequence[int]], added: Sequence[Array] | None = None) -> tuple[Array, Array]:
        """The (n, t, d) states of the last layer, and the (n, t) mask."""
        ids, present = pad(rows, pad_id=self._tables.pad_id)
        mask = present.astype(np.float32)
        values = {"embedded": self._tables.embeddings(ids, added), "bias": mask_bias(mask)}
        (states,) = self._session.run(["states"], values)
        return states, mask


class OnnxEngine:
    name, device = "onnx", "cpu"

    def __init__(self, body: OnnxBody, head: Head, pooling: str) -> None:
        self._body, self._head, self._pooling = body, head, Pooling(pooling)

    def logits(self, rows: Sequence[Sequence[int]]) -> Array:
        return head_logits(unit_rows(*self._body.masked_states(rows), self._pooling), self._head)


def open_session(bert: NumpyBert) -> Any:
    """An InferenceSession from `embedded` (batch, length, width) and `bias` (batch, 1, 1, length) to `states`. It holds
    its weights itself."""
    import onnxruntime

    model, weights = _layers(bert).session_model()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.enable_cpu_mem_arena = options.enable_mem_pattern = False  # kept 440 MB after a batch of long texts
    options.log_severity_level = 3
    options.add_session_config_entry("session.use_device_allocator_for_initializers", "1")
    options.add_external_initializers_from_files_in_memory([BUFFER], [weights], [len(weights)])
    onnxruntime.disable_telemetry_events()
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _layers(bert: NumpyBert) -> Graph:
    graph = Graph()
    embedded = graph.input("embedded", ["batch", "length", bert.width], np.float32)
    bias = graph.input("bias", ["batch", 1, 1, "length"], np.float32)
    graph.output("states", ["batch", "length", bert.width], encoder_layers(graph, bert, embedded, bias))
    return graph
