"""A graph under construction: nodes, weights and constants under names of their own.

Opset 17 and IR 8 are what ONNX Runtime 1.15, onnxruntime-web and OpenVINO 2023 read already, and all later ones.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gpu_runners.errors import ExportRefused

if TYPE_CHECKING:
    from onnx import ModelProto

OPSET = 17
IR_VERSION = 8
_MOST_BYTES = 2_000_000_000  # of one protobuf message, 2^31 with room for the nodes
Dims = Sequence[int | str]


class Graph:
    """Every method that adds something returns the name of its output."""

    def __init__(self) -> None:
        self._nodes: list[Any] = []
        self._weights: dict[str, NDArray[Any]] = {}
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def input(self, name: str, dims: Dims) -> str:
        """A whole-number input."""
        from onnx import TensorProto, helper

        self._inputs.append(helper.make_tensor_value_info(name, TensorProto.INT64, list(dims)))
        return name

    def output(self, name: str, dims: Dims, value: str) -> None:
        """Name a value as a float32 output of the model."""
        from onnx import TensorProto, helper

        self._nodes.append(helper.make_node("Identity", [value], [name], name=name))
        self._outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, list(dims)))

    def weight(self, name: str, values: NDArray[Any]) -> str:
        """A tensor that is stored once, whoever names it again."""
        if name not in self._weights:
            self._weights[name] = np.asarray(values, order="C")  # ascontiguousarray makes rows of scalars
        return name

    def constant(self, values: Any, dtype: Any = np.float32) -> str:
        array = np.asarray(values, dtype=dtype)
        shown = "_".join(str(value) for value in array.ravel().tolist())
        return self.weight(f"constant.{array.dtype.name}.{'x'.join(map(str, array.shape))}.{shown}", array)

    def add(self, op: str, *inputs: str, name: str, **attributes: Any) -> str:
        """A node with one output, which has the node's name. Names must differ."""
        from onnx import helper

        self._nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name

    def model(self, metadata: Mapping[str, str]) -> "ModelProto":
        """The checked model. Raises ExportRefused where it is larger than one ONNX file may be."""
        from onnx import checker, helper, numpy_helper

        n_bytes = sum(values.nbytes for values in self._weights.values())
        if n_bytes > _MOST_BYTES:
            raise ExportRefused(
                f"The student has {n_bytes:,} bytes of weights, and one ONNX file holds 2 GB: use --to peft or --to "
                "sentence-transformers."
            )
        weights = [numpy_helper.from_array(values, name) for name, values in self._weights.items()]
        graph = helper.make_graph(self._nodes, "kolm", self._inputs, self._outputs, weights)
        model = helper.make_model(graph, producer_name="kolm", opset_imports=[helper.make_opsetid("", OPSET)])
        model.ir_version = IR_VERSION
        helper.set_model_props(model, dict(metadata))
        checker.check_model(model, full_check=True)
        return model
