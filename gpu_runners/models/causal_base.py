"""A causal base: its files, its tokenizer, its weights.

The tokenizer is read from tokenizer.json as it stands. `AutoTokenizer` would rebuild it from the config's `model_type`,
and a tokenizer of one's own beside a Qwen2 config silently becomes Qwen2's (other token boundaries).
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_runners.errors import JobFailed
from gpu_runners.models.base_store.files import load_failed, read_json, wrong_architecture
from gpu_runners.models.base_store.refusals import (
    GENERATION_CONFIG,
    end_ids,
    odd_ends,
    unread_size,
    unsupported_base,
)
from gpu_runners.models.bases import Base, open_base
from gpu_runners.models.causal_adapter import AdapterConfig
from gpu_runners.models.chat_template import PLAIN, ChatTemplate, read_template
from gpu_runners.models.rendering.renderer import RENDERER

DEFAULT_CONTEXT = 2048
_OLD_TEMPLATE = "chat_template.json"  # where processors kept it before chat_template.jinja


@dataclass(frozen=True, slots=True, kw_only=True)
class CausalBase:
    """`tokenizer_sha256` is over tokenizer.json and the chat template: what two bases must share for one to draft for
    the other, and what an adapter is bound to. `eos_ids` end an answer; the first one is trained: the end of turn that
    the chat template writes. `special_tokens` are the texts that the tokenizer takes for one token of its own.
    `pad_id` is the tokenizer's padding where the weights have a row for it (a padding added to a tokenizer alone has
    none), else the first end."""

    base: Base
    tokenizer: Any
    tokenizer_sha256: str
    eos_ids: tuple[int, ...]
    special_tokens: tuple[str, ...]
    pad_id: int
    context: int
    vocab_size: int
    hidden_size: int
    template: ChatTemplate = PLAIN

    @property
    def name(self) -> str:
        return self.base.name

    @property
    def sha256(self) -> str:
        return self.base.sha256

    @property
    def folder(self) -> Path:
        return self.base.folder


def open_causal_base(name: str, *, base_dir: Path | None = None, expect_sha256: str | None = None) -> CausalBase:
    """Find, hash and describe a base; its weights are not loaded. Raises JobFailed: what `open_base` raises,
    not_causal (an encoder, or without chat template or end of sequence), unsupported_base (without sizes),
    base_wrong_architecture (files that cannot be understood), bad_chat (a template without an end)."""
    RENDERER.start()
    base = open_base(name, base_dir=base_dir, expect_sha256=expect_sha256)
    try:
        return _describe(base)
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        raise wrong_architecture(name, f"its files cannot be understood ({type(error).__name__})") from error


def _describe(base: Base) -> CausalBase:
    name = base.name
    config = read_json(base.folder, "config.json")
    if not any("CausalLM" in str(kind) for kind in config.get("architectures") or []):
        raise _unfit(name, f"is no causal language model ({config.get('architectures')})")
    if (why := unread_size(config)) != "":
        raise unsupported_base(name, why)
    tokenizer = _tokenizer(base)
    special, declared = _special_tokens(tokenizer), _declared_ends(base, config, tokenizer)
    stops = [str(tokenizer.convert_ids_to_tokens(i)) for i in declared]
    template = read_template(tokenizer, special_tokens=special, stops=stops)
    if template is None:
        raise _unfit(name, "has a chat template that does not take a user's text")
    end = [int(tokenizer.convert_tokens_to_ids(template.end))] if template.end else []
    vocab_size = int(config["vocab_size"])
    if end and end[0] >= vocab_size:
        raise _unfit(name, f"ends its turns with {template.end!r}, for which its weights have no row")
    eos = tuple(dict.fromkeys(i for i in [*end, *declared] if i < vocab_size))
    if not eos:
        raise _unfit(name, "has no end-of-sequence token")
    pad = tokenizer.pad_token_id
    return CausalBase(
        base=base,
        tokenizer=tokenizer,
        tokenizer_sha256=tokenizer_sha256(base.folder, str(tokenizer.chat_template)),
        eos_ids=eos,
        special_tokens=special,
        pad_id=int(pad) if pad is not None and pad < vocab_size else eos[0],
        context=int(config.get("max_position_embeddings") or DEFAULT_CONTEXT),
        vocab_size=vocab_size,
        hidden_size=int(config["hidden_size"]),
        template=template,
    )


def _tokenizer(base: Base) -> Any:
    from transformers import PreTrainedTokenizerFast

    try:
        tokenizer: Any = PreTrainedTokenizerFast.from_pretrained(str(base.folder), local_files_only=True)
    except Exception as error:  # the tokenizers library raises no narrower one for a file that it cannot read
        raise JobFailed(
            f"The base {base.name!r} has a tokenizer.json that cannot be read ({type(error).__name__}).",
            code="base_without_tokenizer",
        ) from error
    if not tokenizer.chat_template and (base.folder / _OLD_TEMPLATE).is_file():
        tokenizer.chat_template = read_json(base.folder, _OLD_TEMPLATE).get("chat_template")
    if not tokenizer.chat_template:
        raise _unfit(base.name, "has no chat template; use an instruct model")
    return tokenizer


def tokenizer_sha256(folder: Path, chat_template: str) -> str:
    digest = hashlib.sha256((folder / "tokenizer.json").read_bytes())
    digest.update(b"\0" + chat_template.encode())
    return digest.hexdigest()


def load_weights(base: CausalBase, *, dtype: str = "float32", attention: str | None = None, **more: Any) -> Any:
    """The frozen `*ForCausalLM` in eval mode, on the CPU unless `more`, which is transformers', says otherwise. Only
    safetensors; no code of a repository is run. An architecture without the `attention` that is asked for gets its own.
    Raises JobFailed(base_wrong_architecture) where transformers does not load it, or where tensors are missing (they
    would be random) or of other shapes; what memory runs out with is raised as it is."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    asked = {} if attention is None else {"attn_implementation": attention}
    try:
        model, loaded = AutoModelForCausalLM.from_pretrained(
            str(base.folder),
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            dtype=getattr(torch, dtype),
            output_loading_info=True,
            **asked,
            **more,
        )
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # whatever a config makes a model's own code raise
        if attention is None or not isinstance(error, (ValueError, ImportError)):
            raise load_failed(base.name, base.folder, error) from error
        return load_weights(base, dtype=dtype, **more)
    lacking = sorted(loaded["missing_keys"])
    if lacking:
        raise wrong_architecture(base.name, f"its weights lack {lacking[0]} and {len(lacking) - 1} more tensors")
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    return model.eval()


def _special_tokens(tokenizer: Any) -> tuple[str, ...]:
    """Added tokens are found in a text before it is split into words, whether they are called special or not."""
    added = [str(token) for token in tokenizer.added_tokens_decoder.values()]
    return tuple(dict.fromkeys([*added, *tokenizer.all_special_tokens]))


def _declared_ends(base: Base, config: dict[str, Any], tokenizer: Any) -> tuple[int, ...]:
    """The tokenizer's own first, then those of the generation config. Raises JobFailed(not_causal)."""
    has_own = (base.folder / GENERATION_CONFIG).is_file()
    declared = read_json(base.folder, GENERATION_CONFIG) if has_own else config
    ids = end_ids(declared)
    if ids is None:
        raise odd_ends(base.name, declared)
    own = tokenizer.eos_token_id
    return tuple(dict.fromkeys([*([] if own is None else [int(own)]), *ids]))


def _unfit(name: str, why: str) -> JobFailed:
    return JobFailed(f"The base {name!r} {why}.", code="not_causal")


def check_fit(config: AdapterConfig, base: CausalBase) -> None:
    """Raises JobFailed(base_mismatch): trained on another base, or on other tokens."""
    for what, wanted, here in (
        ("base", config.base_sha256, base.sha256),
        ("tokenizer", config.tokenizer_sha256, base.tokenizer_sha256),
    ):
        if wanted != here:
            raise JobFailed(
                f"The adapter needs the {what} {wanted[:12]}… of {config.base!r}; on this machine it is {here[:12]}….",
                code="base_mismatch",
            )
