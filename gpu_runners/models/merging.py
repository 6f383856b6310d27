"""The steps between adapters and torch: out of a trained peft model, and merged into a plain one that computes the
same."""

import copy
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from gpu_runners.models.encoder import LabelNet, width_of
from gpu_runners.models.label_adapter import Adapter, AdapterConfig, Head, deltas, unfit
from gpu_runners.models.tensor_files import Array


def net_with(body: nn.Module, head: Head, pooling: str) -> LabelNet:
    """`body` under this head, in eval mode. Raises JobFailed(invalid_adapter) when the widths differ."""
    if head.weight.shape[1] != width_of(body):
        raise unfit(f"its head is {head.weight.shape[1]} wide, the base {width_of(body)}")
    net = LabelNet(body, width=width_of(body), n_labels=len(head.bias), pooling=pooling)
    net.set_head(head)
    return net.eval().requires_grad_(False)


def merged_body(body: nn.Module, adapter: Adapter, config: AdapterConfig) -> nn.Module:
    """A copy of `body` with W + B @ A * alpha / rank in each adapted layer."""
    return with_deltas(body, deltas(adapter, config))


def with_deltas(body: nn.Module, added: Iterable[tuple[str, Array]]) -> nn.Module:
    """A copy of `body` with a matrix added to the weight of each named layer. The embeddings, half of MiniLM's weights,
    are shared with `body`. Raises JobFailed(invalid_adapter) where a shape or a path does not fit the base."""
    shared = getattr(body, "embeddings", None)
    merged = copy.deepcopy(body, {id(shared): shared} if shared is not None else {})
    modules = dict(merged.named_modules())
    with torch.no_grad():
        for path, delta in added:
            layer = modules.get(path)
            if not isinstance(layer, nn.Linear) or layer.weight.shape != delta.shape:
                raise unfit(f"the LoRA pair of {path!r} does not fit the base")
            layer.weight.add_(torch.from_numpy(delta).to(layer.weight.device))
    return merged


def from_peft(net: LabelNet, *, baseline: Head) -> Adapter:
    """Read the adapter out of a peft model."""
    head = Head(weight=to_numpy(net.head.weight), bias=to_numpy(net.head.bias))
    return Adapter(lora=lora_pairs(net.body), head=head, baseline=baseline)


def lora_pairs(body: nn.Module) -> dict[str, tuple[Array, Array]]:
    """Read the LoRA matrices out of a peft model (names `base_model.model.<path>.lora_A.default.weight`)."""
    pairs: dict[str, dict[str, Array]] = {}
    for name, parameter in body.named_parameters():
        for side in "AB":
            path, marker, _ = name.partition(f".lora_{side}.")
            if marker:
                pairs.setdefault(path.removeprefix("base_model.model."), {})[side] = to_numpy(parameter)
    return {path: (sides["A"], sides["B"]) for path, sides in pairs.items()}


def to_numpy(tensor: Tensor) -> Array:
    """A float32 copy."""
    array: Array = tensor.detach().cpu().float().numpy().copy()
    return array


def linear_names(body: nn.Module) -> Sequence[str]:
    """Leaf names of every linear layer: q, k, v and dense in BERT, their like in other encoders."""
    return sorted({name.rsplit(".", 1)[-1] for name, module in body.named_modules() if isinstance(module, nn.Linear)})
