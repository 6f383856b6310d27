"""A base made ready to be trained as was chosen: its weights, 4 bits, kernels, LoRA layers. The one place that knows
PEFT, bitsandbytes and Liger; the last two are imported only where they were chosen, which is on CUDA."""

import sys
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from backend.domain.jobs.causal_jobs import CausalOptions
from backend.domain.planning.adapter_sizes import config_numbers
from gpu_runners.distill.causal.batch import common_prefix
from gpu_runners.distill.causal.dataset import Encoded
from gpu_runners.models.base_store.files import read_json
from gpu_runners.models.causal_adapter import CausalAdapter
from gpu_runners.models.causal_base import CausalBase, load_weights
from gpu_runners.models.device import ROW_TOKENS, Choice, Fallback, ModelSize
from gpu_runners.models.label_adapter import unfit
from gpu_runners.models.merging import to_numpy
from gpu_runners.models.tensor_files import Array

NET = "causal."  # what CompletionNet puts before the names of the base's parameters


def size_of(base: CausalBase) -> ModelSize:
    """Read a base's size from its files' tensors, without loading them."""
    from safetensors import safe_open
    from transformers import AutoConfig

    config: Any = AutoConfig.from_pretrained(str(base.folder), local_files_only=True).get_text_config()
    n_parameters = n_in_blocks = 0
    for path in sorted(base.folder.glob("*.safetensors")):
        with safe_open(str(path), framework="np") as file:
            for name in file.keys():  # noqa: SIM118
                size = prod(file.get_slice(name).get_shape())
                n_parameters += size
                n_in_blocks += size if ".layers." in name else 0
    return ModelSize(
        n_parameters=n_parameters,
        hidden_size=base.hidden_size,
        n_layers=int(config.num_hidden_layers),
        n_outside=n_parameters - n_in_blocks,
        widths=config_numbers(read_json(base.folder, "config.json")),
    )


def prefix_of(encoded: Encoded, base: CausalBase) -> int:
    """Tokens that rows may share: those with which all prompts begin. 0 where an example is longer than a layer's
    window, which the mask of a shared prefix would widen."""
    from transformers import AutoConfig

    config: Any = AutoConfig.from_pretrained(str(base.folder), local_files_only=True).get_text_config()
    full = set(getattr(config, "layer_types", None) or ["full_attention"]) == {"full_attention"}
    windows = [getattr(config, "sliding_window", None), getattr(config, "attention_chunk_size", None)]
    longest = max(len(example.ids) for example in encoded.examples)
    if any(longest > window for window in windows if window) and not full:
        return 0
    return common_prefix(encoded.examples)


def load_frozen(base: CausalBase, choice: Choice, *, device: torch.device) -> Any:
    """The `*ForCausalLM` on `device`, nothing of it trainable."""
    dtype = "bfloat16" if choice.precision == "bf16" and device.type == "cuda" else "float32"
    if choice.quantised:
        model = _in_4_bits(base, choice, device)
    else:
        model = load_weights(base, dtype=dtype, attention=choice.attention).to(device)
    if choice.kernels == "liger":
        _put_liger_into(model)
    if choice.recompute:
        recompute_activations(model)
    return model


def _put_liger_into(model: Any) -> None:
    """Norms and gated layers of this model alone. Liger puts its classes into the architecture's module as well, where
    a model that is loaded later, on a processor perhaps, would get them: that is taken back."""
    from liger_kernel.transformers import (  # type: ignore[import-not-found,unused-ignore]
        _apply_liger_kernel_to_instance,
    )

    architecture = vars(sys.modules[type(model).__module__])
    own = dict(architecture)
    # not its losses: ours is weighted, sees completion positions alone and is made in chunks; nor its rotation, which
    # the module alone can have
    losses = {"cross_entropy": False, "fused_linear_cross_entropy": False}
    _apply_liger_kernel_to_instance(model=model, rope=False, **losses)
    architecture.update(own)


def recompute_activations(model: Any) -> None:
    """Compute activations a second time in the backward pass instead of keeping them, where the architecture can."""
    if model.supports_gradient_checkpointing:
        model.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})


def as_loaded(choice: Choice, model: Any, *, device: torch.device) -> Choice:
    """The choice with the attention that the architecture has, where it lacks the one that was chosen."""
    attention = str(model.config.get_text_config()._attn_implementation)
    if attention == choice.attention or attention not in ("eager", "sdpa"):
        return choice
    note = Fallback(wanted=choice.attention, got=attention, why=f"{type(model).__name__} does not have it")
    row_tokens = choice.row_tokens or ROW_TOKENS[device.type]
    return replace(choice, attention=attention, row_tokens=row_tokens, fallbacks=(*choice.fallbacks, note))


def _in_4_bits(base: CausalBase, choice: Choice, device: torch.device) -> Any:
    """NF4 with double quantisation (Dettmers et al. 2023)."""
    from peft import prepare_model_for_kbit_training
    from transformers import BitsAndBytesConfig

    compute = "bfloat16" if choice.precision == "bf16" else "float32"
    quantisation = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=getattr(torch, compute),
    )
    model = load_weights(
        base, dtype=compute, attention=choice.attention, quantization_config=quantisation, device_map={"": device}
    )
    return prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)  # type: ignore[no-untyped-call]


def with_lora(model: Any, options: CausalOptions) -> nn.Module:
    """PEFT's wrapper around `model`, whose layers it changes in place. A and B are float32 whatever the base is."""
    from peft import LoraConfig, TaskType, get_peft_model

    config = LoraConfig(
        task_type=TaskType.CAUSAL_LM,
        r=options.rank,
        lora_alpha=options.alpha,
        lora_dropout=options.dropout,
        use_rslora=options.variant == "rslora",
        use_dora=options.variant == "dora",
        target_modules=target_names(model),
        bias="none",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft 0.21 asks transformers 5.23 by a deprecated name
        return get_peft_model(model, config)


def target_names(model: Any) -> list[str]:
    """Leaf names of every linear layer but the output's: q, k, v, o, gate, up, down in a Llama."""
    output = model.get_output_embeddings()
    return sorted(
        {
            name.rsplit(".", 1)[-1]
            for name, module in model.named_modules()
            if isinstance(module, nn.Linear) and module is not output
        }
    )


def make_optimizer(choice: Choice, parameters: list[nn.Parameter], rate: float) -> torch.optim.Optimizer:
    """Make an optimiser without weight decay: it would pull B @ A to the base, not to fewer parameters."""
    if choice.optimizer == "paged_adamw_8bit":
        from bitsandbytes.optim import PagedAdamW8bit  # type: ignore[import-not-found,unused-ignore]

        made: torch.optim.Optimizer = PagedAdamW8bit(parameters, lr=rate, weight_decay=0.0)
        return made
    return torch.optim.AdamW(parameters, lr=rate, weight_decay=0.0)


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The whole state by `<parameter's number>.<name>`; numbers as 0-dim tensors. bitsandbytes hands out its 8-bit
    tensors in a dict inside, and takes them back without."""
    out: dict[str, Tensor] = {}
    for n, state in optimizer.state_dict()["state"].items():
        for name, value in state.items():
            inner = value if isinstance(value, dict) else {name: value}
            out |= {f"{n}.{key}": v if isinstance(v, Tensor) else torch.tensor(v) for key, v in inner.items()}
    return out


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    state: dict[int, dict[str, Any]] = {}
    for key, tensor in tensors.items():
        n, _, name = key.partition(".")
        is_number = tensor.ndim == 0 and tensor.dtype == torch.int64  # bitsandbytes counts steps in an int
        state.setdefault(int(n), {})[name] = int(tensor) if is_number else tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


_MAGNITUDE = ".lora_magnitude_vector."
_MARKS = {".lora_A.": "A", ".lora_B.": "B", _MAGNITUDE: "magnitude"}


def weights_from(adapter: CausalAdapter, names: Iterable[str]) -> dict[str, Tensor]:
    """The tensors of an adapter under the `names` of a PEFT model, as `adapter_from` reads them. Raises
    JobFailed(invalid_adapter) where it lacks one."""
    weights: dict[str, Tensor] = {}
    for name in names:
        mark = next(mark for mark in _MARKS if mark in name)
        path = name.partition(mark)[0].removeprefix(NET + "base_model.model.")
        matrices = dict(zip("AB", adapter.lora.get(path, ()), strict=False))
        part = adapter.magnitude.get(path) if mark == _MAGNITUDE else matrices.get(_MARKS[mark])
        if part is None:
            raise unfit(f"it has no {path}")
        weights[name] = torch.from_numpy(np.array(part))
    return weights


def adapter_from(weights: Mapping[str, Tensor]) -> CausalAdapter:
    """A trained PEFT model's tensors as our adapter, from names like
    `causal.base_model.model.<path>.lora_A.default.weight`."""
    by_path: dict[str, dict[str, Array]] = {}
    for name, tensor in weights.items():
        for mark, part in _MARKS.items():
            path, there, _ = name.partition(mark)
            if there:
                by_path.setdefault(path.removeprefix(NET + "base_model.model."), {})[part] = to_numpy(tensor)
    return CausalAdapter(
        lora={path: (parts["A"], parts["B"]) for path, parts in by_path.items()},
        magnitude={path: parts["magnitude"] for path, parts in by_path.items() if "magnitude" in parts},
    )
