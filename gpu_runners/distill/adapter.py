"""An adapter as bytes, and as a model that answers without peft.

One safetensors blob: `lora.<module>.A` (r, in) and `lora.<module>.B` (out, r) for every adapted linear layer,
`head.weight` (n_labels, d), `head.bias` (n_labels,), and the same for the frozen-base baseline as `baseline.*`. All
float32. Never a pickle.
"""

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from gpu_runners.distill.encoder import SCALE, LabelNet, width_of
from gpu_runners.errors import JobFailed

FORMAT = "kolm.lora-encoder/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterConfig:
    """What the tensors do not say. Integers and strings only: it is signed as it stands."""

    format: str
    base: str
    base_sha256: str
    rank: int
    alpha: int
    target_modules: list[str]
    pooling: str
    normalize: bool
    scale: int
    max_tokens: int

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Raises JobFailed(invalid_adapter) unless it is exactly a config that this code computes."""
        types = {f.name: f.type for f in dataclasses.fields(cls)}
        if set(data) != set(types):
            raise _invalid(f"its config has the keys {sorted(data)}, not {sorted(types)}")
        config = cls(**data)
        if (config.format, config.pooling, config.normalize, config.scale) != (FORMAT, "mean", True, SCALE):
            raise _invalid(f"its config is not of the kind {FORMAT}")
        if not all(type(n) is int and 0 < n <= 4096 for n in (config.rank, config.alpha, config.max_tokens)):
            raise _invalid("rank, alpha and max_tokens must be whole numbers in [1, 4096]")
        return config


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """`weight` (n_labels, d), `bias` (n_labels,)."""

    weight: Tensor
    bias: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """`lora` maps a module's path inside the base to its (A, B); delta W = B @ A * alpha / rank."""

    lora: Mapping[str, tuple[Tensor, Tensor]]
    head: Head
    baseline: Head

    @property
    def n_parameters(self) -> int:
        """What was trained: LoRA matrices and head, not the baseline."""
        return (
            sum(a.numel() + b.numel() for a, b in self.lora.values())
            + self.head.weight.numel()
            + self.head.bias.numel()
        )


def to_bytes(adapter: Adapter) -> bytes:
    tensors: dict[str, Tensor] = {}
    for path, (a, b) in adapter.lora.items():
        tensors[f"lora.{path}.A"], tensors[f"lora.{path}.B"] = a, b
    for name, head in (("head", adapter.head), ("baseline", adapter.baseline)):
        tensors[f"{name}.weight"], tensors[f"{name}.bias"] = head.weight, head.bias
    return save({name: tensors[name].detach().cpu().float().contiguous() for name in sorted(tensors)})


def from_bytes(data: bytes) -> Adapter:
    """Raises JobFailed(invalid_adapter) for anything but the tensors above, whole and finite."""
    try:
        tensors = load(data)
    except (SafetensorError, ValueError, KeyError) as error:
        raise _invalid(f"it is not a safetensors file ({error})") from error
    for name, tensor in tensors.items():
        if tensor.dtype != torch.float32 or not bool(torch.isfinite(tensor).all()):
            raise _invalid(f"the tensor {name!r} is not finite float32")
    heads = {}
    for name in ("head", "baseline"):
        weight, bias = tensors.pop(f"{name}.weight", None), tensors.pop(f"{name}.bias", None)
        if weight is None or bias is None or weight.ndim != 2 or bias.shape != weight.shape[:1]:
            raise _invalid(f"the {name}'s weight and bias are missing or do not fit")
        heads[name] = Head(weight=weight, bias=bias)
    paths = sorted({name.removeprefix("lora.")[:-2] for name in tensors})
    if set(tensors) != {f"lora.{path}.{side}" for path in paths for side in "AB"}:
        raise _invalid("it has tensors that are neither a head nor a whole LoRA pair")
    lora = {path: (tensors[f"lora.{path}.A"], tensors[f"lora.{path}.B"]) for path in paths}
    return Adapter(lora=lora, head=heads["head"], baseline=heads["baseline"])


def merged_net(body: nn.Module, adapter: Adapter, config: AdapterConfig, *, n_labels: int) -> LabelNet:
    """A copy of `body` with W + B @ A * alpha / rank in each adapted layer, and the adapter's head. The embeddings,
    half of MiniLM's weights, are shared with `body`. Raises JobFailed(invalid_adapter) where a shape or a path does not
    fit the base."""
    shared = getattr(body, "embeddings", None)
    net = LabelNet(
        copy.deepcopy(body, {id(shared): shared} if shared is not None else {}), width=width_of(body), n_labels=n_labels
    )
    modules = dict(net.body.named_modules())
    with torch.no_grad():
        for path, (a, b) in adapter.lora.items():
            layer = modules.get(path)
            if not isinstance(layer, nn.Linear) or (a.shape, b.shape) != (
                (config.rank, layer.in_features),
                (layer.out_features, config.rank),
            ):
                raise _invalid(f"the LoRA pair of {path!r} does not fit the base {config.base!r}")
            layer.weight.add_(b @ a, alpha=config.alpha / config.rank)
    return _with_head(net, adapter.head)


def baseline_net(body: nn.Module, adapter: Adapter, *, n_labels: int) -> LabelNet:
    """The frozen base with the logistic-regression head: what the adapter has to beat."""
    return _with_head(LabelNet(body, width=width_of(body), n_labels=n_labels), adapter.baseline)


def from_peft(net: LabelNet, *, baseline: Head) -> Adapter:
    """Read the LoRA matrices out of a peft model (names `base_model.model.<path>.lora_A.default.weight`)."""
    found: dict[str, dict[str, Tensor]] = {}
    for name, parameter in net.body.named_parameters():
        for side in "AB":
            path, marker, _ = name.partition(f".lora_{side}.")
            if marker:
                found.setdefault(path.removeprefix("base_model.model."), {})[side] = parameter.detach().clone()
    lora = {path: (sides["A"], sides["B"]) for path, sides in found.items()}
    head = Head(weight=net.head.weight.detach().clone(), bias=net.head.bias.detach().clone())
    return Adapter(lora=lora, head=head, baseline=baseline)


def _with_head(net: LabelNet, head: Head) -> LabelNet:
    if net.head.weight.shape != head.weight.shape:
        raise _invalid(f"its head is {tuple(head.weight.shape)}, the task needs {tuple(net.head.weight.shape)}")
    with torch.no_grad():
        net.head.weight.copy_(head.weight)
        net.head.bias.copy_(head.bias)
    return net.eval().requires_grad_(False)


def linear_names(body: nn.Module) -> Sequence[str]:
    """Leaf names of every linear layer: q, k, v and dense in BERT, their like in other encoders."""
    return sorted({name.rsplit(".", 1)[-1] for name, module in body.named_modules() if isinstance(module, nn.Linear)})


def _invalid(why: str) -> JobFailed:
    return JobFailed(f"The adapter cannot be used: {why}.", code="invalid_adapter")
