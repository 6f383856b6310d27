"""The memory that a training takes of its device, before it begins.

    least      what it cannot do without: weights, what is trained with its gradient and AdamW's moments, and on a
               processor the process itself
    of a step  what one batch of `tokens_per_step` keeps for the way back, and its logits: on a processor, where nothing
               can be caught when memory ends. On a GPU a step that does not fit is computed again in halves.

`docs/benchmarks/sizes.md` has both beside what a training took.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from backend.domain.planning.adapter_sizes import TRAINED_BYTES, linear_shapes

PROCESS_BYTES = 335_000_000  # Python, torch and transformers without a base: measured
QLORA_BYTES_A_WEIGHT = 0.55  # 4 bits and their scales, as gpu_runners.models.device counts them
_F32 = 4
# values that a block takes for each token, in multiples of its widths: norms and residual sums (hidden), what attention
# reads and gives (queries, keys and values, before and after their rotation), what the gated layers pass on, and a
# third for gradients on their way: counted, and fitted to what trainings took
_HIDDEN, _HEADS, _KEYS_VALUES, _INNER = 13, 6, 4, 7
_LOGITS = 3  # logits, their log-softmax and the gradient
_MOST_LOGITS = 1 << 27  # gpu_runners.distill.causal.net makes no more at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """The traits of a device that the memory of a training depends on."""

    is_cuda: bool
    has_bf16: bool


def least_bytes(
    n_parameters: int,
    n_trained: int,
    device: Device,
    *,
    variant: str,
    precision: str,
    config: Mapping[str, int] | None = None,
) -> int:
    """Bytes that a training takes whatever its batches are. qlora leaves embedding and output layer whole, in float32:
    what is not in the blocks that the `config` describes, where it is known."""
    if variant == "qlora":
        n_whole = max(0, n_parameters - _in_blocks(config)) if config else 0
        weights = int((n_parameters - n_whole) * QLORA_BYTES_A_WEIGHT) + n_whole * _F32
    else:
        weights = n_parameters * (2 if device.has_bf16 and precision != "fp32" else _F32)
    process = 0 if device.is_cuda else PROCESS_BYTES
    return weights + n_trained * TRAINED_BYTES + process


def _in_blocks(config: Mapping[str, int]) -> int:
    """The weights of all linear layers inside the blocks."""
    return config["num_hidden_layers"] * sum(n_in * n_out for n_in, n_out in linear_shapes(config).values())


def step_bytes(config: Mapping[str, int], n_tokens: int, *, answer_share: float) -> int:
    """Bytes that one batch of so many tokens takes on a processor, in float32; `answer_share` of them are answers.
    Raises KeyError for a config without its widths."""
    shapes = linear_shapes(config)
    heads, keys = shapes["q_proj"][1], shapes["k_proj"][1]
    kept = _HIDDEN * config["hidden_size"] + _HEADS * heads + 2 * _KEYS_VALUES * keys
    kept += _INNER * config["intermediate_size"]
    logits = min(int(n_tokens * answer_share) * config.get("vocab_size", 0), _MOST_LOGITS)
    return _F32 * (n_tokens * config["num_hidden_layers"] * kept + _LOGITS * logits)


def most_tokens(config: Mapping[str, int], room_bytes: int, *, answer_share: float) -> int:
    """The largest number of tokens of a batch that takes at most so many bytes, a multiple of 64; 0 where 64 take
    more."""
    low, high = 0, 1 << 14  # in 64s: a spec's most is 2 ** 20 tokens
    while low < high:
        middle = (low + high + 1) // 2
        fits = step_bytes(config, 64 * middle, answer_share=answer_share) <= room_bytes
        low, high = (middle, high) if fits else (low, middle - 1)
    return 64 * low
