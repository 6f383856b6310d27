"""BERT's and RoBERTa's forward pass as ONNX nodes, the same numbers as `NumpyBert` computes (to 1e-4, tested).

graph = Graph()
tokens = token_inputs(graph)
hidden = encoder_body(graph, bert, tokens)              # (batch, length, width): under every head
unit = unit_rows(graph, pool_rows(graph, hidden, tokens, pooling))
graph.output("logits", ["batch", n], linear(graph, unit, "head", weight, bias))
"""

from dataclasses import dataclass

import numpy as np

from backend.domain.encoders.sentence_settings import Pooling
from gpu_runners.models.numpy_bert import NumpyBert
from gpu_runners.models.onnx.graph import Graph
from gpu_runners.models.tensor_files import Array

WORDS = "embeddings.word_embeddings.weight"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenInputs:
    """The names of the two inputs, both (batch, length) int64, and of the mask as float32."""

    ids: str
    mask: str
    weights: str


def token_inputs(graph: Graph) -> TokenInputs:
    """Add `input_ids` and `attention_mask`; rows are padded on the right."""
    dims = ["batch", "length"]
    ids, mask = graph.input("input_ids", dims), graph.input("attention_mask", dims)
    return TokenInputs(ids=ids, mask=mask, weights=graph.add("Cast", mask, name="mask.float", to=1))


def encoder_body(
    graph: Graph, bert: NumpyBert, tokens: TokenInputs, *, int8_words: bool = False, added: str | None = None
) -> str:
    """Add the encoder; returns its last layer's states, (batch, length, width) float32. `int8_words`: the table of
    words is stored in int8 with one scale a row. `added`, of the shape of the states, is added to the embeddings of the
    words."""
    hidden = _embeddings(graph, bert, tokens, int8_words=int8_words, added=added)
    absent = graph.add("Sub", graph.constant(1.0), tokens.weights, name="mask.absent")
    wide = graph.add("Unsqueeze", absent, graph.constant([1, 2], np.int64), name="mask.wide")
    bias = graph.add("Mul", wide, graph.constant(-1e9), name="mask.bias")
    return encoder_layers(graph, bert, hidden, bias)


def encoder_layers(graph: Graph, bert: NumpyBert, hidden: str, bias: str) -> str:
    """Add the layers alone: from embedded tokens, (batch, length, width), and what is added to the attention's scores,
    (batch, 1, 1, length)."""
    for layer in range(bert.n_layers):
        hidden = _layer(graph, bert, hidden, bias, f"encoder.layer.{layer}.")
    return hidden


def pool_rows(graph: Graph, hidden: str, tokens: TokenInputs, pooling: Pooling) -> str:
    """(batch, width) of the states, as `numpy_bert.pool` computes it."""
    one = graph.constant([1], np.int64)
    weights = tokens.weights
    match pooling:
        case Pooling.CLS:
            return graph.add("Gather", hidden, graph.constant(0, np.int64), name="pool.first", axis=1)
        case Pooling.LAST_TOKEN:
            n = graph.add("ReduceSum", tokens.mask, one, name="pool.n", keepdims=1)
            n = graph.add("Max", n, one, name="pool.least")
            last = graph.add("Sub", n, one, name="pool.last_index")
            return graph.add("GatherND", hidden, last, name="pool.last", batch_dims=1)
        case Pooling.MAX:
            wide = graph.add("Unsqueeze", tokens.mask, graph.constant([2], np.int64), name="pool.wide")
            real = graph.add("Cast", wide, name="pool.real", to=9)
            states = graph.add("Where", real, hidden, graph.constant(-np.inf), name="pool.states")
            return graph.add("ReduceMax", states, name="pool.max", axes=[1], keepdims=0)
        case Pooling.WEIGHTED_MEAN:
            steps = graph.add("CumSum", tokens.weights, graph.constant(1, np.int64), name="pool.steps")
            weights = graph.add("Mul", tokens.weights, steps, name="pool.weights")
    wide = graph.add("Unsqueeze", weights, graph.constant([2], np.int64), name="pool.wide")
    weighed = graph.add("Mul", hidden, wide, name="pool.weighed")
    total = graph.add("ReduceSum", weighed, one, name="pool.total", keepdims=0)
    n = graph.add("ReduceSum", weights, one, name="pool.n", keepdims=1)
    n = graph.add("Max", n, graph.constant(1.0), name="pool.least")
    if pooling is Pooling.MEAN_SQRT_LEN:
        n = graph.add("Sqrt", n, name="pool.root")
    return graph.add("Div", total, n, name="pool.mean")


def unit_rows(graph: Graph, rows: str) -> str:
    """The rows at length 1."""
    length = graph.add("ReduceL2", rows, name="unit.length", axes=[-1], keepdims=1)
    return graph.add("Div", rows, graph.add("Max", length, graph.constant(1e-12), name="unit.least"), name="unit.rows")


def linear(graph: Graph, rows: str, name: str, weight: Array, bias: Array) -> str:
    """`rows @ weight.T + bias` of any number of leading dimensions: of pooled rows, or of each token's states."""
    product = graph.add("MatMul", rows, graph.weight(f"{name}.weight.T", weight.T), name=f"{name}.product")
    return graph.add("Add", product, graph.weight(f"{name}.bias", bias), name=f"{name}.out")


def _embeddings(graph: Graph, bert: NumpyBert, tokens: TokenInputs, *, int8_words: bool, added: str | None) -> str:
    words = (_int8_words if int8_words else _words)(graph, bert, tokens.ids)
    kind = graph.weight("embeddings.token_type", bert.weights["embeddings.token_type_embeddings.weight"][0])
    at = _positions(graph, bert, tokens.ids)
    total = graph.add("Add", graph.add("Add", words, kind, name="embeddings.typed"), at, name="embeddings.total")
    if added is not None:
        total = graph.add("Add", total, added, name="embeddings.added")
    return _norm(graph, bert, total, "embeddings.LayerNorm")


def _words(graph: Graph, bert: NumpyBert, ids: str) -> str:
    return graph.add("Gather", graph.weight(WORDS, bert.weights[WORDS]), ids, name="words.rows")


def _int8_words(graph: Graph, bert: NumpyBert, ids: str) -> str:
    """A row's largest number becomes 127; the scale of each row is float32."""
    table = bert.weights[WORDS]
    scales = np.maximum(np.abs(table).max(axis=1, keepdims=True), np.float32(1e-12)) / np.float32(127)
    whole = np.rint(table / scales).astype(np.int8)
    rows = graph.add("Gather", graph.weight(f"{WORDS}.int8", whole), ids, name="words.int8")
    scale = graph.add("Gather", graph.weight(f"{WORDS}.scales", scales), ids, name="words.scales")
    return graph.add("Mul", graph.add("Cast", rows, name="words.float", to=1), scale, name="words.rows")


def _positions(graph: Graph, bert: NumpyBert, ids: str) -> str:
    """The row of the position table for each token: counted along the row, or in RoBERTa over the real tokens."""
    table = graph.weight("embeddings.positions", bert.weights["embeddings.position_embeddings.weight"])
    if not bert.counts_positions:
        shape = graph.add("Shape", ids, name="ids.shape")
        length = graph.add("Gather", shape, graph.constant([1], np.int64), name="ids.length", axis=0)
        return graph.add("Slice", table, graph.constant([0], np.int64), length, name="positions.rows")
    pad = graph.constant(bert.pad_id, np.int64)
    same = graph.add("Equal", ids, pad, name="positions.padding")
    real = graph.add("Cast", graph.add("Not", same, name="positions.not_padding"), name="positions.real", to=7)
    steps = graph.add("CumSum", real, graph.constant(1, np.int64), name="positions.steps")
    at = graph.add("Add", graph.add("Mul", steps, real, name="positions.counts"), pad, name="positions")
    return graph.add("Gather", table, at, name="positions.rows")


def _layer(graph: Graph, bert: NumpyBert, hidden: str, bias: str, at: str) -> str:
    mixed = _attention(graph, bert, hidden, bias, at)
    out = _dense(graph, bert, mixed, f"{at}attention.output.dense")
    hidden = _norm(
        graph, bert, graph.add("Add", hidden, out, name=f"{at}attention.sum"), f"{at}attention.output.LayerNorm"
    )
    inner = _gelu(graph, _dense(graph, bert, hidden, f"{at}intermediate.dense"), f"{at}gelu")
    out = _dense(graph, bert, inner, f"{at}output.dense")
    return _norm(graph, bert, graph.add("Add", hidden, out, name=f"{at}output.sum"), f"{at}output.LayerNorm")


def _attention(graph: Graph, bert: NumpyBert, hidden: str, bias: str, at: str) -> str:
    split = graph.constant([0, 0, bert.n_heads, bert.width // bert.n_heads], np.int64)
    heads = {}
    for kind, order in (("query", (0, 2, 1, 3)), ("key", (0, 2, 3, 1)), ("value", (0, 2, 1, 3))):
        name = f"{at}attention.self.{kind}"
        apart = graph.add("Reshape", _dense(graph, bert, hidden, name), split, name=f"{name}.apart")
        heads[kind] = graph.add("Transpose", apart, name=f"{name}.heads", perm=order)
    scores = graph.add("MatMul", heads["query"], heads["key"], name=f"{at}attention.dots")
    root = graph.constant(np.float32((bert.width // bert.n_heads) ** 0.5))
    scores = graph.add("Div", scores, root, name=f"{at}attention.scaled")
    scores = graph.add("Add", scores, bias, name=f"{at}attention.scores")
    shares = graph.add("Softmax", scores, name=f"{at}attention.shares", axis=-1)
    mixed = graph.add("MatMul", shares, heads["value"], name=f"{at}attention.mixed")
    rows = graph.add("Transpose", mixed, name=f"{at}attention.rows", perm=(0, 2, 1, 3))
    return graph.add("Reshape", rows, graph.constant([0, 0, bert.width], np.int64), name=f"{at}attention.whole")


def _dense(graph: Graph, bert: NumpyBert, rows: str, name: str) -> str:
    return linear(graph, rows, name, bert.weights[f"{name}.weight"], bert.weights[f"{name}.bias"])


def _norm(graph: Graph, bert: NumpyBert, rows: str, name: str) -> str:
    sides = (graph.weight(f"{name}.{side}", bert.weights[f"{name}.{side}"]) for side in ("weight", "bias"))
    return graph.add("LayerNormalization", rows, *sides, name=name, axis=-1, epsilon=bert.eps)


def _gelu(graph: Graph, rows: str, name: str) -> str:
    """`x / 2 (1 + erf(x / sqrt 2))`, in the form that runtimes recognise and compute in one go."""
    scaled = graph.add("Div", rows, graph.constant(np.float32(2**0.5)), name=f"{name}.scaled")
    error = graph.add("Erf", scaled, name=f"{name}.erf")
    whole = graph.add("Mul", rows, graph.add("Add", error, graph.constant(1.0), name=f"{name}.one"), name=f"{name}.two")
    return graph.add("Mul", whole, graph.constant(0.5), name=name)
