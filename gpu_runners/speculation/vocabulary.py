"""A tokenizer's vocabulary as bytes, and texts as observed tokens: what recipe packs are made of."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from backend.domain.recipes.observing import Observed, observe
from gpu_runners.errors import JobFailed
from gpu_runners.models.causal_base import CausalBase
from gpu_runners.models.chat import completion_ids

_SPACE = "\u2581"  # how sentencepiece writes a space


def token_texts(base: CausalBase) -> list[bytes]:
    """The bytes of every id, `base.vocab_size` of them. Special tokens, and ids that the tokenizer does not have, have
    none. Reads byte-level BPE, and sentencepiece-like vocabularies with byte fallback (where the space that such a
    tokenizer puts before a text is one of its first token's bytes). Raises JobFailed(unknown_tokenizer)."""
    backend: Any = base.tokenizer.backend_tokenizer
    special = {int(i) for i, token in base.tokenizer.added_tokens_decoder.items() if token.special}
    added = {int(i): str(token) for i, token in base.tokenizer.added_tokens_decoder.items()}
    read = _reader(backend)
    texts = [b""] * max(base.vocab_size, backend.get_vocab_size(with_added_tokens=True))
    for token, i in backend.get_vocab(with_added_tokens=True).items():
        if i in added:
            texts[i] = b"" if i in special else added[i].encode()
        else:
            texts[i] = read(token)
    return texts


def observed_of(base: CausalBase, output: str, samples: Sequence[str], *, prompt: Sequence[int] = ()) -> Observed:
    """An accepted answer and its valid samples, each with its end token; `prompt` as it is served, if it is known."""
    return observe(completion_ids(base, output), [completion_ids(base, sample) for sample in samples], prompt=prompt)


def _reader(backend: Any) -> Callable[[str], bytes]:
    decoder = json.dumps(json.loads(backend.to_str()).get("decoder"))
    if '"ByteLevel"' in decoder:
        return _byte_level
    if '"ByteFallback"' in decoder:
        return _sentence_piece
    raise JobFailed("This base's tokenizer is neither byte-level BPE nor of byte fallback.", code="unknown_tokenizer")


def _sentence_piece(token: str) -> bytes:
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        return bytes([int(token[3:5], 16)])
    return token.replace(_SPACE, " ").encode()


def _byte_level(token: str) -> bytes:
    return bytes(_BYTES[character] for character in token)


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's: printable bytes stand for themselves, the others for the characters from U+0100 on."""
    shown = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(0x100 + n): byte for n, byte in enumerate(hidden)}


_BYTES = _byte_alphabet()
