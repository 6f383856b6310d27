"""The abilities of this machine as a value, and what a distillation should switch on there, as a pure function of it.

`choose` decides and gives its reasons; what was really active is read back from the model and the optimiser after they
are made (`gpu_runners.distill.causal.active`), never copied from here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from backend.domain.jobs.causal_jobs import CausalOptions
from backend.domain.planning.training_memory import QLORA_BYTES_A_WEIGHT, step_bytes
from gpu_runners.errors import JobFailed

ROW_TOKENS = {"cpu": 256, "cuda": 1024}  # where attention is dense, its cost grows with the square
_MIN_SHARED = {"cpu": 1 / 3, "cuda": 1 / 8}  # of the mean example: below, a dense mask costs more than it saves
_LIBRARIES = {"liger": ("liger_kernel", "liger-kernel"), "bitsandbytes": ("bitsandbytes", "bitsandbytes")}
_LIBRARIES |= {"flash_attn": ("flash_attn", "flash-attn"), "transformer_engine": ("transformer_engine",) * 2}
# where only the width of a base is known
_ACTIVATION_BYTES = 34  # a token, layer and unit of width, in half precision: Korthikanti et al. 2022, eq. 2
_FILL = 0.8  # of the device's memory that weights and activations may take before activations are recomputed


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """`capability` is CUDA's (major, minor), (0, 0) elsewhere. `bf16`: multiplied natively. `libraries`: name ->
    version, those that can be imported here."""

    device: str  # cpu | cuda
    name: str
    capability: tuple[int, int] = (0, 0)
    memory_bytes: int = 0
    bf16: bool = False
    flex: bool = False
    libraries: Mapping[str, str] = field(default_factory=dict)

    @property
    def nvfp4(self) -> bool:
        """4-bit floats: Blackwell, and a library that has them."""
        return self.capability >= (10, 0) and "transformer_engine" in self.libraries


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSize:
    """`n_outside` of the parameters are not in a block: embedding and output layer, which stay whole where the blocks
    are quantised. `widths` are the config's numbers (`adapter_sizes.config_numbers`), empty where its kind is not
    known."""

    n_parameters: int
    hidden_size: int
    n_layers: int
    n_outside: int = 0
    widths: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """`wanted` was asked for, or is what a faster device gets; `got` runs instead, because of `why`."""

    wanted: str
    got: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The settings to switch on. `row_tokens`: length of packed rows, 0 for one row a step (kernels of variable
    length)."""

    precision: str  # fp32 | bf16
    attention: str  # sdpa | flash_attention_2 | flex_attention
    batching: str  # shared_prefix | packed | bucketed | padded
    row_tokens: int
    kernels: str  # plain | liger
    optimizer: str  # adamw | paged_adamw_8bit
    quantised: bool
    recompute: bool
    fallbacks: tuple[Fallback, ...]


def detect() -> Capabilities:
    """Asks torch and the package metadata; imports none of the optional libraries."""
    import torch

    libraries = {
        name: version for name, (module, package) in _LIBRARIES.items() if (version := _version(module, package))
    }
    if not torch.cuda.is_available():
        return Capabilities(device="cpu", name="cpu", flex=True, libraries=libraries)
    properties = torch.cuda.get_device_properties(0)
    capability = (int(properties.major), int(properties.minor))
    return Capabilities(
        device="cuda",
        name=str(properties.name),
        capability=capability,
        memory_bytes=int(properties.total_memory),
        bf16=capability >= (8, 0),  # torch says yes on a T4 too, where it is emulated and slower than fp32
        flex=capability >= (8, 0),
        libraries=libraries,
    )


def choose(options: CausalOptions, can: Capabilities, size: ModelSize, *, shared_share: float = 0.0) -> Choice:
    """`shared_share`: of the mean example, what all prompts begin with. All that cannot be had falls back, with its
    reason. Raises JobFailed(not_on_this_device) for qlora without CUDA and bitsandbytes alone: training on a base that
    is not quantised is another job."""
    notes: list[Fallback] = []
    if options.variant == "qlora" and (can.device != "cuda" or "bitsandbytes" not in can.libraries):
        lacking = "lacks bitsandbytes (kolm's extra 'gpu', docs/client.md)"
        missing = lacking if can.device == "cuda" else "has no CUDA device"
        raise JobFailed(
            f"qlora holds the base in 4 bits, and this runner {missing}; use variant lora, or another runner.",
            code="not_on_this_device",
        )
    precision = _precision(options, can, notes)
    is_short = _is_short_of_memory(options, can, size, precision)
    attention = _attention(options, can, precision, notes)
    one_row = attention in ("flash_attention_2", "flex_attention")
    if can.capability >= (10, 0):
        why = "no training in 4-bit floats was tried on such a device yet" if can.nvfp4 else "no transformer_engine"
        notes.append(Fallback(wanted="nvfp4", got=precision, why=why))
    return Choice(
        precision=precision,
        attention=attention,
        batching=_batching(options, can, shared_share, notes, one_row=one_row),
        row_tokens=0 if one_row else ROW_TOKENS[can.device],
        kernels=_kernels(options, can, notes, is_short=is_short),
        optimizer=_optimizer(options, can, notes, is_short=is_short),
        quantised=options.variant == "qlora",
        recompute=is_short,
        fallbacks=tuple(notes),
    )


def _batching(
    options: CausalOptions, can: Capabilities, shared_share: float, notes: list[Fallback], *, one_row: bool
) -> str:
    """Dense attention takes any mask, so there a common system message is read once a row. On a CPU, packed rows
    without such a prefix are slower than rows of alike lengths."""
    if options.batching == "shared_prefix" and one_row:
        why = "kernels of variable length know nothing but boundaries"
        notes.append(Fallback(wanted="shared_prefix", got="packed", why=why))
        return "packed"
    if options.batching != "auto":
        return options.batching
    if not one_row and shared_share >= _MIN_SHARED[can.device]:
        return "shared_prefix"
    return "packed" if can.device == "cuda" or one_row else "bucketed"


def _precision(options: CausalOptions, can: Capabilities, notes: list[Fallback]) -> str:
    if options.precision != "auto":
        if options.precision == "bf16" and not can.bf16:
            notes.append(Fallback(wanted="bf16", got="fp32", why=f"{can.name} has no native bf16"))
            return "fp32"
        return options.precision
    if can.device == "cuda" and not can.bf16:
        notes.append(Fallback(wanted="bf16", got="fp32", why=f"{can.name} has no native bf16"))
    return "bf16" if can.bf16 else "fp32"


def _attention(options: CausalOptions, can: Capabilities, precision: str, notes: list[Fallback]) -> str:
    wanted = "flash_attention_2" if options.attention == "auto" else options.attention
    if wanted == "flash_attention_2":
        why = _no_flash(can, precision)
        if why is None:
            return wanted
        if can.device == "cuda" or options.attention != "auto":
            notes.append(Fallback(wanted=wanted, got="sdpa", why=why))
        return "sdpa"
    if wanted == "flex_attention" and not can.flex:
        notes.append(Fallback(wanted=wanted, got="sdpa", why=f"{can.name} is older than compute capability 8.0"))
        return "sdpa"
    return wanted


def _no_flash(can: Capabilities, precision: str) -> str | None:
    if can.device != "cuda":
        return "no CUDA device"
    if can.capability < (8, 0):
        return f"{can.name} is older than compute capability 8.0"
    if "flash_attn" not in can.libraries:
        return "flash-attn is not installed"
    return None if precision == "bf16" else "it computes in half precision only"


def _kernels(options: CausalOptions, can: Capabilities, notes: list[Fallback], *, is_short: bool) -> str:
    """Liger where memory is short: it saves some, and with 8-bit moments it was slower than torch's own kernels and
    AdamW on an H200 (docs/benchmarks/gpu.md)."""
    if options.kernels == "plain" or (options.kernels == "auto" and not is_short):
        return "plain"
    if can.device == "cuda" and "liger" in can.libraries:
        return "liger"
    if can.device == "cuda" or options.kernels == "liger":
        why = "liger-kernel is not installed" if can.device == "cuda" else "no CUDA device"
        notes.append(Fallback(wanted="liger", got="plain", why=why))
    return "plain"


def _optimizer(options: CausalOptions, can: Capabilities, notes: list[Fallback], *, is_short: bool) -> str:
    if options.optimizer == "adamw" or (options.optimizer == "auto" and not is_short):
        return "adamw"
    if can.device == "cuda" and "bitsandbytes" in can.libraries:
        return "paged_adamw_8bit"
    if can.device == "cuda" or options.optimizer == "paged_adamw_8bit":
        why = "bitsandbytes is not installed" if can.device == "cuda" else "no CUDA device"
        notes.append(Fallback(wanted="paged_adamw_8bit", got="adamw", why=why))
    return "adamw"


def _is_short_of_memory(options: CausalOptions, can: Capabilities, size: ModelSize, precision: str) -> bool:
    """Say whether activations do not fit, so that they are computed a second time in the backward pass instead of kept.
    Qwen2.5-7B in bf16, 4096 tokens: 15.2 GB + 2 B * 4096 * 28 * 204,800 values + 0.8 GB of logits = 63 GB (an H200 took
    47 GB of it): kept on 80 GB, not on 48."""
    if can.device != "cuda":
        return False
    tokens = max(options.tokens_per_step, options.max_tokens)
    halves = 2 if precision == "bf16" else 1
    if size.widths:
        activations = step_bytes(size.widths, tokens, answer_share=1.0) // halves  # it counts float32
    else:
        activations = _ACTIVATION_BYTES * tokens * size.n_layers * size.hidden_size * 2 // halves
    return _weight_bytes(options, size, precision) + activations > _FILL * can.memory_bytes


def _weight_bytes(options: CausalOptions, size: ModelSize, precision: str) -> float:
    """The bytes of the frozen base. What 4 bits leave whole, PEFT makes float32."""
    if options.variant == "qlora":
        return (size.n_parameters - size.n_outside) * QLORA_BYTES_A_WEIGHT + size.n_outside * 4
    return size.n_parameters * (2 if precision == "bf16" else 4)


def _version(module: str, package: str) -> str | None:
    if find_spec(module) is None:
        return None
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
