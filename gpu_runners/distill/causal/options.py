"""The options of a causal distillation: read strictly, with ranges that this trainer can work with, and the learning
rate where none is given."""

from collections.abc import Mapping
from typing import Any

from backend.domain.jobs.causal_jobs import CausalOptions
from gpu_runners.distill.causal.divergences import Divergence
from gpu_runners.errors import JobFailed

_CHOICES = {
    "variant": ("lora", "rslora", "dora", "qlora"),
    "precision": ("auto", "fp32", "bf16"),
    "batching": ("auto", "shared_prefix", "packed", "bucketed", "padded"),
    "optimizer": ("auto", "adamw", "paged_adamw_8bit"),
    "kernels": ("auto", "liger", "plain"),
    "attention": ("auto", "sdpa", "flash_attention_2", "flex_attention"),
    "divergence": tuple(Divergence),
}
_RANGES: dict[str, tuple[float, float]] = {
    "rank": (1, 256),
    "alpha": (1, 4096),
    "dropout": (0, 0.95),
    "learning_rate": (0, 1),
    "epochs": (1, 200),
    "tokens_per_step": (16, 1 << 20),
    "max_tokens": (8, 1 << 17),
    "warmup_share": (0, 1),
    "seed": (-(1 << 62), 1 << 62),
    "patch_size": (1, 64),
    "patch_share": (0, 0.95),
    "validation_share": (0, 0.5),
    "patience": (0, 1000),
    "soft_weight": (0, 1),
}
_WHOLE = {"rank", "alpha", "epochs", "tokens_per_step", "max_tokens", "seed", "patch_size", "patience"}


def read_causal_options(data: Mapping[str, Any]) -> CausalOptions:
    """Raises JobFailed(invalid_options) for unknown keys and for values out of range; a key that is missing has its
    default."""
    try:
        options = CausalOptions.from_json(dict(data))
    except (ValueError, TypeError) as error:
        raise JobFailed(f"The job's options cannot be read: {error}.", code="invalid_options") from error
    for name, allowed in _CHOICES.items():
        if getattr(options, name) not in allowed:
            raise _out_of_range(name, getattr(options, name), f"one of {', '.join(allowed)}")
    for name, (low, high) in _RANGES.items():
        value = getattr(options, name)
        kind = int if name in _WHOLE else (int, float)
        if isinstance(value, bool) or not isinstance(value, kind) or not low <= value <= high:
            raise _out_of_range(name, value, f"a {'whole ' if name in _WHOLE else ''}number in [{low}, {high}]")
    return options


def _out_of_range(name: str, value: object, wanted: str) -> JobFailed:
    return JobFailed(f"The job's option {name} is {str(value)[:60]!r}, not {wanted}.", code="invalid_options")


WIDTH, RATE, POWER = 896, 2e-4, 1.5  # Qwen2.5-0.5B's


def learning_rate_for(hidden_size: int) -> float:
    """2e-4 at the width of Qwen2.5-0.5B and above, more below: 2e-4 * (896 / width) ** 1.5. Width 128: 3.7e-3.

    2e-4 is what LoRA on 0.5 to 70 billion parameters is commonly given; the power was
    looked at on the project's own base (docs/distilling.md).
    """
    return float(RATE * max(1.0, WIDTH / hidden_size) ** POWER)
