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
BUFFER = "weights"  # the name under which a session model's large weights are handed over
_LARGE = 65_536  # bytes of a weight, from which on it stays out of a session model's own bytes
_MOST_BYTES = 2_000_000_000  # of one protobuf message, 2^31 with room for the nodes
Dims = Sequence[int | str]


class Graph:
    """Every method that adds something returns the name of its output."""

    def __init__(self) -> None:
        self._nodes: list[Any] = []
        self._weights: dict[str, NDArray[Any]] = {}
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def input(self, name: str, dims: Dims, dtype: Any = np.int64) -> str:
        from onnx import helper

        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self._inputs.append(helper.make_tensor_value_info(name, kind, list(dims)))
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
        model = self._model([numpy_helper.from_array(values, name) for name, values in self._weights.items()])
        helper.set_model_props(model, dict(metadata))
        checker.check_model(model, full_check=True)
        return model

    def session_model(self) -> tuple[bytes, bytes]:
        """The model without its large weights, and these one after another, to be handed over as the file BUFFER: half
        of the time that a whole model takes to be written and read. It is of any size, and not checked."""
        from onnx import numpy_helper

        weights, large, at = [], [], 0
        for name, values in self._weights.items():
            if values.nbytes < _LARGE:
                weights.append(numpy_helper.from_array(values, name))
                continue
            weights.append(_elsewhere(name, values, at))
            large.append(values.tobytes())
            at += values.nbytes
        return self._model(weights).SerializeToString(), b"".join(large)

    def _model(self, weights: Sequence[Any]) -> "ModelProto":
        from onnx import helper

        graph = helper.make_graph(self._nodes, "kolm", self._inputs, self._outputs, weights)
        model = helper.make_model(graph, producer_name="kolm", opset_imports=[helper.make_opsetid("", OPSET)])
        model.ir_version = IR_VERSION
        return model


def _elsewhere(name: str, values: NDArray[Any], at: int) -> Any:
    """A weight whose bytes begin at `at` of BUFFER."""
    from onnx import TensorProto, helper

    kind = helper.np_dtype_to_tensor_dtype(values.dtype)
    tensor = TensorProto(name=name, dims=values.shape, data_type=kind, data_location=TensorProto.EXTERNAL)
    for key, value in (("location", BUFFER), ("offset", str(at)), ("length", str(values.nbytes))):
        tensor.external_data.add(key=key, value=value)
    return tensor
