"""Random causal bases of several architectures with a real byte-level tokenizer: made in a second, good for everything
but meaning. Their weights are wide, so that texts differ and no two tokens tie."""

from pathlib import Path
from typing import Any

import numpy as np

from gpu_runners.models.causal_adapter import FORMAT, AdapterConfig, CausalAdapter, write_peft_folder
from gpu_runners.models.causal_base import CausalBase, open_causal_base
from gpu_runners.models.protocol import AdapterRef

CONTEXT = 512
SPECIAL = ["<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
WORDS = 'the order of tea and coffee {"name": "value", "n": 12, "list": ["a", "b"]} costs 3 é ü 漢字 true false null\n'
TARGETS = ("self_attn.q_proj", "self_attn.v_proj", "mlp.down_proj")


def make_base(folder: Path, *, kind: str = "llama", seed: int = 1) -> CausalBase:
    import torch

    folder.mkdir(parents=True)
    tokenizer = _tokenizer(folder)
    sizes: dict[str, Any] = {
        "vocab_size": tokenizer + 5,  # a base has more rows than tokens
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": CONTEXT,
        "initializer_range": 0.25,
        "bos_token_id": None,
        "eos_token_id": 0,
        "pad_token_id": 0,
        "tie_word_embeddings": False,
    }
    torch.manual_seed(seed)
    model = _model(kind, sizes)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.3)
    with torch.no_grad():
        model.lm_head.weight[tokenizer:] = 0.0  # rows without a token
        model.lm_head.weight[0] *= 0.5  # the end comes, but not at once
    model.save_pretrained(folder)
    return open_causal_base(folder.name, base_dir=folder.parent)


def _model(kind: str, sizes: dict[str, Any]) -> Any:
    import transformers as t

    match kind:
        case "llama":
            return t.LlamaForCausalLM(t.LlamaConfig(**sizes))
        case "gemma2":
            return t.Gemma2ForCausalLM(t.Gemma2Config(**sizes, head_dim=16, query_pre_attn_scalar=16))
        case "phi3":
            return t.Phi3ForCausalLM(t.Phi3Config(**sizes))
        case "phi3-longrope":
            factors = {"short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
            rope = {"rope_type": "longrope", "rope_theta": 10_000.0, **factors}
            config = t.Phi3Config(**sizes, rope_parameters=rope, original_max_position_embeddings=CONTEXT // 2)
            return t.Phi3ForCausalLM(config)
        case "lfm2":
            layers = ["conv", "full_attention"]
            return t.Lfm2ForCausalLM(t.Lfm2Config(**sizes, layer_types=layers, block_auto_adjust_ff_dim=False))
        case "stablelm":
            return t.StableLmForCausalLM(t.StableLmConfig(**sizes))
        case "glm":
            return t.GlmForCausalLM(t.GlmConfig(**sizes, head_dim=16))
        case _:
            return t.Qwen2ForCausalLM(t.Qwen2Config(**sizes))


def make_sharded(folder: Path, *, kind: str = "qwen2", seed: int = 1) -> CausalBase:
    """The same weights in several files with an index, as transformers writes a large model."""
    from transformers import AutoModelForCausalLM

    whole = make_base(folder, kind=kind, seed=seed)
    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="100KB")
    return open_causal_base(whole.name, base_dir=folder.parent)


def with_tokens_beyond(base: CausalBase, **roles: str) -> CausalBase:
    """The base in its folder with special tokens (`pad_token="<pad>"`) for which its weights have no row."""
    more = [f"<unused{i}>" for i in range(base.vocab_size - len(base.tokenizer))]
    base.tokenizer.add_special_tokens({"extra_special_tokens": more} | roles)
    base.tokenizer.save_pretrained(base.folder)
    return open_causal_base(base.name, base_dir=base.folder.parent)


def make_adapter(base: CausalBase, folder: Path, *, number: int, rank: int = 4, variant: str = "lora") -> AdapterRef:
    """A random adapter that changes what the base says."""
    folder.mkdir(parents=True)
    adapter, config = random_adapter(base, seed=number, rank=rank, variant=variant)
    write_peft_folder(folder, adapter, config)
    return AdapterRef(key=f"{number:064x}", folder=folder, number=number)


def random_adapter(
    base: CausalBase, *, seed: int, rank: int = 4, variant: str = "lora"
) -> tuple[CausalAdapter, AdapterConfig]:
    rng = np.random.default_rng(seed)
    shapes = {"self_attn.q_proj": (64, 64), "self_attn.v_proj": (64, 32), "mlp.down_proj": (96, 64)}
    lora, magnitude = {}, {}
    for layer in range(2):
        for name in TARGETS:
            wide, tall = shapes[name]
            a = rng.normal(0, 0.3, (rank, wide)).astype(np.float32)
            b = rng.normal(0, 0.3, (tall, rank)).astype(np.float32)
            lora[f"model.layers.{layer}.{name}"] = (a, b)
            if variant == "dora":
                magnitude[f"model.layers.{layer}.{name}"] = rng.uniform(1, 3, tall).astype(np.float32)
    config = AdapterConfig(
        format=FORMAT,
        base=base.name,
        base_sha256=base.sha256,
        tokenizer_sha256=base.tokenizer_sha256,
        rank=rank,
        alpha=8,
        variant=variant,
        target_modules=sorted({name.rpartition(".")[2] for name in TARGETS}),
        max_tokens=256,
    )
    return CausalAdapter(lora=lora, magnitude=magnitude), config


def _tokenizer(folder: Path) -> int:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([WORDS] * 50, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<|end|>")
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
    return int(tokenizer.get_vocab_size())
