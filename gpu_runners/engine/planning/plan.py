"""The settings that an engine is started with: a pure function of the base, the device and what is wanted.

Nothing here imports an engine, so that the plan for a B200 is tested on a laptop. What a plan leaves out, and why,
is in its `notes`; what then really ran is in the engine's `about`.
"""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from gpu_runners.engine.planning.base_facts import BYTES, BaseFacts
from gpu_runners.engine.planning.devices import Device, DeviceKind
from gpu_runners.errors import JobFailed

GIB = 1 << 30
VLLM_RANKS = (8, 16, 32, 64, 128, 256, 512)  # what its kernels are preallocated for
TYPICAL_TOKENS = 1024  # of one request, prompt and answer: how many fit at once is planned with it
_GPU_SHARE, _CPU_SHARE = 0.90, 0.25
_ACTIVATIONS = 2 * GIB  # CUDA context, graphs, activations of one step
RECIPE_TOKENS = 16  # of a draft by recipes at most: what packs are built with


class Speculation(StrEnum):
    """The source of draft tokens. `recipes`: what a request itself names, its pack above all. `suffix` looks in what
    all requests said before."""

    NONE = "none"
    RECIPES = "recipes"
    NGRAM = "ngram"
    SUFFIX = "suffix"
    DRAFT_MODEL = "draft_model"


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """The demands on an engine. `slots` adapters may be in one batch; `max_rank` is the highest rank among them.
    `draft` and `draft_folder` name the base that drafts (DRAFT_MODEL). `greedy_only`: requests with a temperature are
    refused. `single_tenant`: nobody else's text is in this engine."""

    slots: int = 8
    ram_adapters: int = 64
    max_rank: int = 16
    max_context: int = 8192
    max_running: int = 256
    speculation: Speculation = Speculation.NONE
    draft: str = ""
    draft_folder: str = ""
    draft_tokens: int = 5
    greedy_only: bool = False
    single_tenant: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePlan:
    """`kv_bytes` is what the key-value cache may take on one device, `kv_tokens` how many tokens that holds;
    `memory_share` is of the device's memory, for everything together. `notes` say what was wanted and left out."""

    base: str
    device: DeviceKind
    device_name: str
    dtype: str
    kv_dtype: str
    quantization: str
    max_model_len: int
    max_running: int
    max_batched_tokens: int
    slots: int
    ram_adapters: int
    max_rank: int
    memory_share: float
    kv_bytes: int
    kv_tokens: int
    block_size: int
    tensor_parallel: int
    prefix_caching: bool
    chunked_prefill: bool
    enforce_eager: bool
    greedy_only: bool
    speculation: Speculation
    draft: str
    draft_folder: str
    draft_tokens: int
    notes: tuple[str, ...]

    def about(self) -> dict[str, Any]:
        """Texts and whole numbers."""
        shown = asdict(self) | {"memory_share": round(self.memory_share * 100), "notes": "; ".join(self.notes)}
        del shown["draft_folder"]
        return {key: int(value) if isinstance(value, bool) else value for key, value in shown.items()}

    def vllm_arguments(self) -> dict[str, Any]:
        """The arguments of vLLM 0.32's AsyncEngineArgs; model and tokenizer are added by the engine. AWQ and GPTQ are
        not named: vLLM reads them from the base's config and chooses its kernels."""
        is_cpu = self.device is DeviceKind.CPU
        arguments: dict[str, Any] = {
            "dtype": self.dtype,
            "max_model_len": self.max_model_len,
            "max_num_seqs": self.max_running,
            "max_num_batched_tokens": self.max_batched_tokens,
            "enable_prefix_caching": self.prefix_caching,
            "enable_chunked_prefill": self.chunked_prefill,
            "enforce_eager": self.enforce_eager,
            "kv_cache_dtype": "fp8" if self.kv_dtype == "fp8" else "auto",
            "enable_lora": self.slots > 0,
            "trust_remote_code": False,
        }
        if self.slots:
            # CPU: a base request in a batch with adapters gets the adapter of the last slot (upstream #48421); one slot
            # more than there are adapters in a batch stays empty, and base requests get that
            arguments["max_loras"] = self.slots + is_cpu
            arguments["max_cpu_loras"] = max(self.ram_adapters, self.slots + is_cpu)
            arguments["max_lora_rank"] = next((rank for rank in VLLM_RANKS if rank >= self.max_rank), VLLM_RANKS[-1])
        if is_cpu:
            arguments["block_size"] = self.block_size
        else:
            arguments["gpu_memory_utilization"] = self.memory_share
            arguments["tensor_parallel_size"] = self.tensor_parallel
        if self.speculation is not Speculation.NONE:
            arguments["speculative_config"] = self._speculative()
        return arguments

    def vllm_environment(self) -> dict[str, str]:
        """The environment variables that vLLM reads when it is imported."""
        always = {"VLLM_NO_USAGE_STATS": "1", "VLLM_PLUGINS": "", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "0"}
        if self.device is not DeviceKind.CPU:
            return always
        space = str(max(1, self.kv_bytes // GIB))
        return always | {"VLLM_CPU_KVCACHE_SPACE": space, "VLLM_CPU_OMP_THREADS_BIND": "nobind"}

    def _speculative(self) -> dict[str, Any]:
        config: dict[str, Any] = {"method": str(self.speculation), "num_speculative_tokens": self.draft_tokens}
        if self.speculation is Speculation.RECIPES:
            config |= {"method": "custom_class", "model": "gpu_runners.speculation.vllm.plugin.RecipeProposer"}
        elif self.speculation is Speculation.DRAFT_MODEL:
            config["model"] = self.draft_folder
        elif self.speculation is Speculation.NGRAM:
            config |= {"prompt_lookup_min": 2, "prompt_lookup_max": 5}
        return config


def plan(base: BaseFacts, device: Device, needs: Needs) -> EnginePlan:
    """Raises JobFailed(base_too_large) where the weights leave no room for even one request."""
    is_cpu = device.kind is DeviceKind.CPU
    notes: list[str] = []
    dtype = _dtype(base, device)
    kv_dtype = "fp8" if not is_cpu and device.capability >= (9, 0) else dtype
    if not is_cpu and kv_dtype != "fp8":
        notes.append("FP8 key-value cache needs compute capability 9.0")
    speculation = _speculation(device, needs, notes)
    max_rank = max(needs.max_rank, 1)
    parallel = _tensor_parallel(base, device)
    a_token = base.kv_bytes_a_token(kv_dtype) // parallel or 1
    max_len = min(base.context, needs.max_context)
    room = _room(base, device, needs, dtype=dtype, parallel=parallel)
    if is_cpu:  # the machine's memory is for others too: what all requests fill, twice (old prefixes), and no more
        room = min(room, -(-2 * needs.max_running * max_len * a_token // GIB) * GIB)
    kv_tokens = room // a_token
    if kv_tokens < min(max_len, TYPICAL_TOKENS):
        raise JobFailed(
            f"The base {base.name!r} ({base.weight_bytes / GIB:.1f} GiB of weights) leaves no room for requests on "
            f"{device.count} x {device.name} ({device.memory_bytes / GIB:.0f} GiB); use its AWQ build, a smaller base "
            "or more devices.",
            code="base_too_large",
        )
    max_running = _at_once(kv_tokens, needs.max_running, 32 if is_cpu else 256)
    drafted = RECIPE_TOKENS if speculation is Speculation.RECIPES else needs.draft_tokens
    drafted = drafted if speculation is not Speculation.NONE else 0
    return EnginePlan(
        base=base.name,
        device=device.kind,
        device_name=device.name,
        dtype=dtype,
        kv_dtype=kv_dtype,
        quantization=base.quantization,
        max_model_len=min(max_len, kv_tokens),
        max_running=max_running,
        # LoRA with drafts: every request of a batch may bring its drafts (vLLM refuses less)
        max_batched_tokens=max(2048 if is_cpu else 8192, max_running * (drafted + 1)),
        slots=needs.slots,
        ram_adapters=max(needs.ram_adapters, needs.slots),
        max_rank=max_rank,
        memory_share=_CPU_SHARE if is_cpu else _GPU_SHARE,
        kv_bytes=room,
        kv_tokens=kv_tokens,
        block_size=32 if is_cpu else 16,  # vLLM's 128 on a CPU finds no shared prefix in short prompts
        tensor_parallel=parallel,
        prefix_caching=True,
        chunked_prefill=True,
        enforce_eager=is_cpu,
        greedy_only=needs.greedy_only,
        speculation=speculation,
        draft=needs.draft if speculation is Speculation.DRAFT_MODEL else "",
        draft_folder=needs.draft_folder if speculation is Speculation.DRAFT_MODEL else "",
        draft_tokens=drafted,
        notes=tuple(notes),
    )


def _dtype(base: BaseFacts, device: Device) -> str:
    if device.kind is DeviceKind.CPU:
        return "bfloat16" if device.has_bf16 else "float32"
    if device.capability < (8, 0):
        return "float16"  # T4, V100: no bfloat16 units
    return "bfloat16"


def _speculation(device: Device, needs: Needs, notes: list[str]) -> Speculation:
    if needs.speculation is Speculation.NONE:
        return Speculation.NONE
    if needs.speculation is Speculation.RECIPES:  # on a CPU its hook mends what sampling gets wrong
        notes.append("drafts by recipes: vLLM schedules each step after the last, not ahead of it")
        return Speculation.RECIPES
    if device.kind is DeviceKind.CPU and not needs.greedy_only:
        notes.append("no drafts on a CPU: sampling with a temperature is wrong beside them there (upstream #55005)")
        return Speculation.NONE
    if needs.speculation is Speculation.SUFFIX and not needs.single_tenant:
        notes.append("no suffix drafts for several tenants: their tree of past answers is one for all")
        return Speculation.NONE
    if needs.speculation is Speculation.DRAFT_MODEL and not needs.draft_folder:
        notes.append("no draft model is paired with this base")
        return Speculation.NONE
    return needs.speculation


def _tensor_parallel(base: BaseFacts, device: Device) -> int:
    """The fewest devices that hold the weights and leave a quarter of their memory for requests."""
    parallel = 1
    while (
        device.kind is DeviceKind.CUDA
        and base.weight_bytes / parallel > 0.65 * device.memory_bytes
        and parallel * 2 <= device.count
        and base.n_kv_heads % (parallel * 2) == 0
    ):
        parallel *= 2
    return parallel


def _room(base: BaseFacts, device: Device, needs: Needs, *, dtype: str, parallel: int) -> int:
    """Bytes for the key-value cache on one device."""
    adapters = needs.slots * needs.max_rank * base.adapted_width * base.n_layers * BYTES[dtype] // parallel
    if device.kind is DeviceKind.CPU:
        grown = 1 if base.quantization else BYTES[dtype] / 2  # files hold two bytes a weight
        left = device.memory_bytes - int(base.weight_bytes * 1.2 * grown) - adapters
        return max(0, min(int(device.memory_bytes * _CPU_SHARE), left // 2, 8 * GIB) // GIB * GIB)
    used = base.weight_bytes // parallel + adapters + _ACTIVATIONS
    return max(0, int(device.memory_bytes * _GPU_SHARE) - used)


def _at_once(kv_tokens: int, wanted: int, most: int) -> int:
    fits = max(1, kv_tokens // TYPICAL_TOKENS)
    return max(1, min(wanted, most, 1 << (fits.bit_length() - 1)))
