"""Packs are looked at before vLLM is asked: by its key, its tokenizer and its size."""

import hashlib
from pathlib import Path

import pytest

from backend.domain.recipes.pack import MAX_PACK_BYTES, Recipe, RecipePack
from backend.domain.recipes.shapes import SHAPE_VERSION
from gpu_runners.models.protocol import PackRef, Rejected
from gpu_runners.speculation.vllm.drafting import check_pack

TOKENS = "a" * 64
RECIPE = Recipe(after=(1,), shape="", run=(2,), after_text="a", run_text="b", support=3, agreed=3)


def written(data: bytes, folder: Path) -> PackRef:
    key = hashlib.sha256(data).hexdigest()
    (folder / key).write_bytes(data)
    return PackRef(key=key, path=folder / key)


def pack(**changed: str) -> bytes:
    fields = {"tokenizer_sha256": TOKENS, "base": "small"} | changed
    return RecipePack(**fields, recipes=(RECIPE,), shape_version=SHAPE_VERSION).to_bytes()


def test_a_verified_pack_of_the_same_tokenizer_is_taken(tmp_path: Path) -> None:
    check_pack(written(pack(), tmp_path), TOKENS)
    check_pack(written(b'{"entries": []}', tmp_path), TOKENS)


def test_what_is_altered_foreign_oversized_or_gone_is_refused(tmp_path: Path) -> None:
    altered = written(pack(), tmp_path)
    altered.path.write_bytes(pack(base="other"))
    refs = {
        "altered": altered,
        "tokenizer": written(pack(tokenizer_sha256="b" * 64), tmp_path),
        "altered ": written(b" " * (MAX_PACK_BYTES + 2), tmp_path),
        "cannot be read": PackRef(key="0" * 64, path=tmp_path / "gone"),
        "not JSON": written(b"{", tmp_path),
    }
    for word, ref in refs.items():
        with pytest.raises(Rejected, match=word.strip()) as caught:
            check_pack(ref, TOKENS)
        assert caught.value.code == "bad_pack"
