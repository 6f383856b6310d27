"""A trained PEFT model's tensors as our adapter."""

from collections.abc import Mapping

from torch import Tensor

from gpu_runners.distill.causal.loading import NET
from gpu_runners.models.causal_adapter import CausalAdapter
from gpu_runners.models.label_adapter import Array
from gpu_runners.models.merging import to_numpy

_MARKS = {".lora_A.": "A", ".lora_B.": "B", ".lora_magnitude_vector.": "magnitude"}


def adapter_from(weights: Mapping[str, Tensor]) -> CausalAdapter:
    """From names like `causal.base_model.model.<path>.lora_A.default.weight`."""
    found: dict[str, dict[str, Array]] = {}
    for name, tensor in weights.items():
        for mark, part in _MARKS.items():
            path, there, _ = name.partition(mark)
            if there:
                found.setdefault(path.removeprefix(NET + "base_model.model."), {})[part] = to_numpy(tensor)
    return CausalAdapter(
        lora={path: (parts["A"], parts["B"]) for path, parts in found.items()},
        magnitude={path: parts["magnitude"] for path, parts in found.items() if "magnitude" in parts},
    )
