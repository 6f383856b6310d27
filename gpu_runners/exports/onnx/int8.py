"""Dynamic quantisation to int8: weights of every layer are stored in one byte, activations are rounded as they come.

The table of words is in int8 already, with a scale a row (`encoder_body`), for half of a small encoder's weights are
in it and one scale for all of them costs accuracy. Heads stay in float32: they are small, and their rounding is seen.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import ModelProto


def write_int8(model: "ModelProto", path: Path, *, heads: Sequence[str]) -> None:
    """Write the model with its linear layers in int8, one scale a column, and the heads of these names as they are.
    Weights use 7 bits: with 8, processors without VNNI instructions saturate, and answers would depend on the
    machine."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with _no_advice():
        quantize_dynamic(
            model,
            path,
            op_types_to_quantize=["MatMul"],
            per_channel=True,
            reduce_range=True,
            weight_type=QuantType.QInt8,
            nodes_to_exclude=[f"{name}.product" for name in heads],
            extra_options={"MatMulConstBOnly": True},
        )


@contextmanager
def _no_advice() -> Iterator[None]:
    """Keep back ONNX Runtime's advice to optimise the graph first: these graphs have nothing left to fold."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
