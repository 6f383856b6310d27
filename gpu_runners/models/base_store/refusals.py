"""The refusal of a base by its small files alone: what a training of it or the evaluation after that would end with. A
look says it before the teacher is paid, a training before it loads the weights.

Evaluation is by our own engine, so a base that only vLLM runs is refused as well.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from backend.domain.encoders.card_prefixes import Use
from backend.domain.encoders.sentence_settings import UnsupportedEncoder, read_settings
from gpu_runners.errors import JobFailed
from gpu_runners.models.base_store.fetching import MODULES

TEMPLATES = ("chat_template.jinja", "chat_template.json")
TOKENIZER_CONFIG, GENERATION_CONFIG = "tokenizer_config.json", "generation_config.json"
# the small files that a refusal is decided by, beside config.json
READ_OF = {
    "causal": (TOKENIZER_CONFIG, GENERATION_CONFIG),
    "encoder": (MODULES, "config_sentence_transformers.json"),  # and the pooling that modules.json names
}
MOVING_ROPES = frozenset({"dynamic", "longrope", "su"})  # their angles depend on the longest sequence of a batch
_LAYERS = frozenset({"full_attention", "sliding_attention", "attention"})
# the logits of attention are capped in these unless their config says that they are not
_CAPPED = frozenset({"gemma2", "vaultgemma"})
# causal `model_type`s whose attention cannot be replaced by ours: transformers 5.23 gives them no attention backend
NO_BACKEND = frozenset({
    "bailing_hybrid", "bamba", "bart", "big_bird", "bigbird_pegasus", "biogpt", "blenderbot", "blenderbot-small",
    "bloom", "blt", "codegen", "cpmant", "falcon", "falcon_h1", "falcon_mamba", "git", "gpt_neo", "gpt_neox_japanese",
    "gptj", "inkling2_text", "inkling_text", "jamba", "kimi_linear", "mamba", "mamba2", "marian", "mbart",
    "megatron-bert", "mpt", "musicgen", "musicgen_melody", "mvp", "nemotron_h", "olmo_hybrid", "pegasus", "plbart",
    "prophetnet", "qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_next", "qwen4_exp",
    "qwen4_exp_text", "rembert", "roformer", "rwkv", "stablelm", "trocr", "whisper", "xglm", "xlstm", "zamba",
    "zamba2",
})  # fmt: skip
# those that have one and do more in their attention than it is asked for: sinks, convolutions, compressed keys
_OTHER_ATTENTION = frozenset({
    "deepseek_v4", "flint", "gpt_oss", "granite_swa", "granitemoe_swa", "hy_v4", "lfm2", "lfm2_moe", "mimo_v2_flash",
})  # fmt: skip


def causal_refusal(
    name: str,
    config: Mapping[str, Any],
    files: Collection[str],
    tokenizer_config: Mapping[str, Any],
    generation_config: Mapping[str, Any] | None = None,
) -> JobFailed | None:
    """The reason against a causal base with these files, None where there is none: not_causal, base_unsupported,
    unsupported_base. Without a `generation_config` the ends are config.json's."""
    declared = config.get("architectures")
    if not isinstance(declared, list) or not any("CausalLM" in str(kind) for kind in declared):
        return JobFailed(
            f"The base {name!r} is no causal language model ({json.dumps(declared)[:200]}). "
            "Use an instruct model whose architecture ends in ForCausalLM.",
            code="not_causal",
        )
    if not any(file in files for file in TEMPLATES) and not tokenizer_config.get("chat_template"):
        return JobFailed(f"The base {name!r} has no chat template. Use an instruct model.", code="not_causal")
    if config.get("quantization_config"):
        return _quantised_base(name)
    ends = config if generation_config is None else generation_config
    if end_ids(ends) is None:
        return odd_ends(name, ends)
    why = not_run(config) or unread_size(config)
    return unsupported_base(name, why) if why else None


def end_ids(config: Mapping[str, Any]) -> list[int] | None:
    """The tokens that end an answer by a config's `eos_token_id`, which is one or several; None where it names what is
    no token's id."""
    declared = config.get("eos_token_id")
    ids = declared if isinstance(declared, list) else [] if declared is None else [declared]
    return ids if all(type(i) is int and i >= 0 for i in ids) else None


def odd_ends(name: str, config: Mapping[str, Any]) -> JobFailed:
    return JobFailed(
        f"The base {name!r} names an end of answers that is no token's id "
        f"(eos_token_id {json.dumps(config.get('eos_token_id'))[:200]}). Use another revision or another base.",
        code="not_causal",
    )


def unread_size(config: Mapping[str, Any]) -> str:
    """The reason against a config.json that does not name its sizes as most do (GPT-2's kind has an `n_embd`), "" where
    there is none."""
    for key in ("vocab_size", "hidden_size"):
        size = config.get(key)
        if type(size) is not int or size < 1:
            return f"its config.json has no {key}" if size is None else f"its {key} is {json.dumps(size)[:200]}"
    return ""


def encoder_refusal(name: str, config: Mapping[str, Any], read: Callable[[str], Any]) -> JobFailed | None:
    """The reason against an encoder, None where there is none: base_unsupported. `read` gives the JSON of one of its
    files, None where there is no such file."""
    if config.get("quantization_config"):
        return _quantised_base(name)
    if config.get("is_encoder_decoder") is True:
        return JobFailed(
            f"The base {name!r} writes as well as reads, it is no encoder of texts alone. Use an encoder (BERT, "
            "RoBERTa, MPNet, ModernBERT and their like).",
            code="base_unsupported",
        )
    try:
        read_settings(name, Use.CLASSIFICATION, read)
    except UnsupportedEncoder as refused:
        return JobFailed(refused.message, code=refused.code)
    return None


def not_run(config: Mapping[str, Any]) -> str:
    """The reason why our engine cannot run a causal base with this config, "" where its config names none."""
    kind = str(config.get("model_type"))
    if kind in NO_BACKEND or kind in _OTHER_ATTENTION:
        return f"the attention of {kind} is not like others'"
    if (rope := next((rope for rope in _ropes(config) if rope in MOVING_ROPES), None)) is not None:
        return f"its positions are of the kind {rope}, which depends on the longest text of a batch"
    if config.get("attn_logit_softcapping", kind in _CAPPED):
        return "it caps the logits of its attention"
    if config.get("kv_lora_rank"):
        return "its attention compresses keys and values"
    layers = config.get("layer_types")
    other = sorted({str(layer) for layer in layers} - _LAYERS) if isinstance(layers, list) else []
    return f"it has layers of the kind {other[0]}" if other else ""


def unsupported_base(name: str, why: str) -> JobFailed:
    return JobFailed(
        f"This engine cannot run the base {name!r}: {why}. Use another base; a server with vLLM may run it.",
        code="unsupported_base",
    )


def _ropes(config: Mapping[str, Any]) -> Iterator[str]:
    """The kinds of rotary positions that a config names, under the names of today and of earlier releases."""
    for key in ("rope_parameters", "rope_scaling"):
        rope = config.get(key)
        if isinstance(rope, Mapping):
            kind = str(rope.get("rope_type") or rope.get("type"))
            yield "longrope" if kind == "yarn" and config.get("model_type") == "phi3" else kind


def _quantised_base(name: str) -> JobFailed:
    return JobFailed(
        f"The weights of the base {name!r} are quantised, and kolm trains over whole ones. Use the base that it was "
        "made of; train.causal.variant qlora holds that in 4 bits while it trains.",
        code="base_unsupported",
    )
