"""The settings that were really switched on, read back from the objects that trained: the model's own attention
setting, the classes of its layers and of the optimiser, the types of its parameters. Whole numbers and texts alone,
because receipts are signed as they stand."""

import dataclasses
from collections import Counter
from importlib.metadata import version
from typing import Any

import torch
from torch import nn

from gpu_runners.distill.causal.fit import Fit
from gpu_runners.distill.causal.selfcheck import Checked
from gpu_runners.models.device import Capabilities

_ALWAYS = ("torch", "transformers", "peft", "tokenizers", "accelerate")


def read_back(fit: Fit, *, can: Capabilities, checked: Checked) -> dict[str, Any]:
    config = fit.net.core().config
    return {
        "device": fit.device.type,
        "device_name": can.name,
        "capability": ".".join(map(str, can.capability)) if can.device == "cuda" else None,
        "precision": fit.choice.precision,
        "parameters": _types(fit.net, trained=False),
        "trained_parameters": _types(fit.net, trained=True),
        "attention": str(config.get_text_config()._attn_implementation),
        "optimizer": _name(type(fit.optimizer)),
        "optimizer_state": _state_types(fit.optimizer),
        "learning_rate": f"{fit.learning_rate:.3g}",
        "kernels": _liger_modules(fit.net),
        "quantised_layers": sum(_is_4_bit(module) for module in fit.net.modules()),
        "recompute": any(getattr(m, "gradient_checkpointing", False) is True for m in fit.net.modules()),
        "batching": fit.choice.batching,
        "shared_prefix": fit.n_shared if fit.choice.batching == "shared_prefix" else 0,
        "tokens_per_step": fit.options.tokens_per_step,
        "logits": "completions" if fit.net.direct else "all",
        "isolation": checked.to_json(),
        "patches": {"size": fit.options.patch_size, "steps": fit.n_patch_steps} if fit.n_patch_steps else None,
        "out_of_memory": None if fit.halved_at is None else {"step": fit.halved_at, "parts": fit.parts},
        "processes": fit.processes.world,
        "engine": fit.processes.engine,
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "nvfp4": {"detected": can.nvfp4, "active": False},
        "fallbacks": [dataclasses.asdict(note) for note in fit.choice.fallbacks],
        "versions": {name: version(name) for name in _ALWAYS} | dict(can.libraries),
    }


def _types(net: nn.Module, *, trained: bool) -> dict[str, int]:
    """Number of parameters by type."""
    count: Counter[str] = Counter()
    for parameter in net.parameters():
        if parameter.requires_grad is trained:
            count[str(parameter.dtype).removeprefix("torch.")] += parameter.numel()
    return dict(sorted(count.items()))


def _state_types(optimizer: torch.optim.Optimizer) -> list[str]:
    """The types of the optimiser's moments: bitsandbytes keeps small tensors in float32 whatever its name says."""
    return sorted(
        {
            str(value.dtype).removeprefix("torch.")
            for state in optimizer.state.values()
            for value in state.values()
            if isinstance(value, torch.Tensor) and value.ndim > 0
        }
    )


def _liger_modules(net: nn.Module) -> dict[str, int]:
    """Modules that Liger computes, by class; empty where there is none. It replaces `forward` on the instance."""
    count: Counter[str] = Counter()
    for module in net.modules():
        forward = getattr(module.forward, "__func__", module.forward)
        if "liger_kernel" in f"{forward.__module__} {type(module).__module__}":
            count[type(module).__name__] += 1
    return dict(sorted(count.items()))


def _is_4_bit(module: nn.Module) -> bool:
    """PEFT's wrapper around such a layer has the same class name, in another package."""
    return type(module).__name__ == "Linear4bit" and type(module).__module__.startswith("bitsandbytes")


def _name(kind: type) -> str:
    return f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
