"""Vocabularies as bytes: joined, they are the text that was encoded."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpu_runners.errors import JobFailed
from gpu_runners.models.causal_base import CausalBase, open_causal_base
from gpu_runners.models.chat import completion_ids
from gpu_runners.speculation.vocabulary import observed_of, token_texts
from tests.tiny_bases import TINY, tiny_bases  # noqa: F401 (a fixture)


@pytest.fixture(scope="module")
def base(tiny_bases: Path) -> CausalBase:  # noqa: F811
    return open_causal_base(TINY, base_dir=tiny_bases)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.text(st.characters(codec="utf-8"), max_size=30))
def test_the_bytes_of_a_texts_tokens_are_the_text(base: CausalBase, text: str) -> None:
    texts = token_texts(base)
    ids = completion_ids(base, text)
    assert b"".join(texts[i] for i in ids) == text.encode()
    assert ids[-1] in base.eos_ids


def test_special_tokens_and_ids_without_a_token_have_no_bytes(base: CausalBase) -> None:
    texts = token_texts(base)
    assert len(texts) == base.vocab_size
    assert all(texts[i] == b"" for i in base.eos_ids)
    assert sum(text == b"" for text in texts) == len(base.special_tokens)


def test_an_answer_and_its_samples_are_aligned_with_their_end(base: CausalBase) -> None:
    seen = observed_of(base, '{"a": 1}', ['{"a": 1}', '{"a": 2}'])
    assert seen.n_samples == 2
    assert seen.agreed[0] == 2
    assert seen.tokens[-1] == base.eos_ids[0]
    assert min(seen.agreed) == 1


class _Wrapped:
    """What is asked of a `PreTrainedTokenizerFast`, around a tokenizer of the tokenizers library."""

    def __init__(self, backend: Any) -> None:
        self.backend_tokenizer = backend
        self.added_tokens_decoder = backend.get_added_tokens_decoder()


def _base_with(backend: Any, vocab_size: int) -> Any:
    class Base:
        tokenizer = _Wrapped(backend)

    Base.vocab_size = vocab_size  # type: ignore[attr-defined]
    return Base


def test_a_vocabulary_with_byte_fallback_is_read_as_sentencepiece_writes_it() -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models

    pieces = ["<s>", "<0xC3>", "<0xA9>", "\u2581tea", "\u2581", "<tool>"]
    backend = Tokenizer(
        models.BPE(vocab={piece: i for i, piece in enumerate(pieces[:5])}, merges=[], byte_fallback=True)
    )
    backend.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    backend.add_special_tokens([AddedToken("<s>", special=True)])
    backend.add_tokens([AddedToken("<tool>", special=False)])
    assert token_texts(_base_with(backend, 8)) == [b"", b"\xc3", b"\xa9", b" tea", b" ", b"<tool>", b"", b""]


def test_a_tokenizer_of_another_kind_is_refused() -> None:
    from tokenizers import Tokenizer, decoders, models

    backend = Tokenizer(models.WordPiece(vocab={"tea": 0, "[UNK]": 1}))
    backend.decoder = decoders.WordPiece()
    with pytest.raises(JobFailed) as refused:
        token_texts(_base_with(backend, 2))
    assert refused.value.code == "unknown_tokenizer"
