"""What is read out of sentence-transformers' files, in the format of today and in the one before."""

from typing import Any

import pytest

from backend.domain.encoders.card_prefixes import Use
from backend.domain.encoders.sentence_settings import (
    Pooling,
    SentenceSettings,
    UnsupportedEncoder,
    pooling_file,
    read_settings,
    readable_tokens,
)

MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
]


def settings(
    name: str = "acme/encoder", *, use: Use = Use.CLASSIFICATION, modules: Any = MODULES, **files: Any
) -> SentenceSettings:
    """Of an encoder that has `modules`, `pooling`, `prompts`, `bert` and `tokenizer` as its files."""
    content = {
        "modules.json": modules,
        "1_Pooling/config.json": files.get("pooling", {"pooling_mode": "mean"}),
        "config_sentence_transformers.json": files.get("prompts"),
        "sentence_bert_config.json": files.get("bert"),
        "tokenizer_config.json": files.get("tokenizer"),
    }
    return read_settings(name, use, content.get)


def test_an_encoder_without_these_files_is_pooled_by_the_mean() -> None:
    assert settings(modules=None) == SentenceSettings(pooling=Pooling.MEAN)


@pytest.mark.parametrize(
    ("path", "file"),
    [
        ("1_Pooling", "1_Pooling/config.json"),
        ("pooling/", "pooling/config.json"),
        ("./modules/1_Pooling", "modules/1_Pooling/config.json"),
        ("", "config.json"),
        ("a/../..", None),
        ("../1_Pooling", None),
    ],
)
def test_the_pooling_lies_where_modules_json_says(path: str, file: str | None) -> None:
    modules = [MODULES[0], MODULES[1] | {"path": path}]
    assert pooling_file(modules) == file
    content = {"modules.json": modules, file: {"pooling_mode": "cls"}}
    if file is not None:
        assert read_settings("acme/encoder", Use.CLASSIFICATION, content.get).pooling is Pooling.CLS
        return
    with pytest.raises(UnsupportedEncoder, match="which its modules"):
        read_settings("acme/encoder", Use.CLASSIFICATION, content.get)


@pytest.mark.parametrize("mode", list(Pooling))
def test_both_formats_name_the_same_pooling(mode: Pooling) -> None:
    old = {"cls": "cls_token", "max": "max_tokens", "mean": "mean_tokens", "weightedmean": "weightedmean_tokens"}
    keys = {value: f"pooling_mode_{(value in old and old[value]) or value}" for value in Pooling}
    before = {key: value is mode for value, key in keys.items()}
    assert settings(pooling=before).pooling is settings(pooling={"pooling_mode": mode.value}).pooling is mode


def test_the_prompt_of_the_use_goes_before_the_default_one_and_that_before_the_cards() -> None:
    card = "intfloat/multilingual-e5-small"
    default = {"prompts": {"q": "q: ", "Clustering": "group: "}, "default_prompt_name": "q"}
    assert settings(card, prompts=default, use=Use.CLUSTERING).prefix == "group: "
    assert settings(card, prompts=default).prefix == "q: "
    assert settings(card, prompts={"prompts": {"query": "", "document": ""}}).prefix == "query: "
    assert settings(card, prompts={"prompts": {"classification": ""}}).prefix == ""
    assert settings(prompts={"prompts": {"query": "never: "}, "default_prompt_name": None}).prefix == ""


def test_the_length_is_that_of_the_files() -> None:
    assert settings(bert={"max_seq_length": 256}, tokenizer={"model_max_length": 512}).max_tokens == 256
    assert settings(bert={"max_seq_length": None}, tokenizer={"model_max_length": 512}).max_tokens == 512
    assert settings(tokenizer={"model_max_length": 10**30}).max_tokens is None


@pytest.mark.parametrize(
    ("files", "length"),
    [
        ({"roberta": 128}, 128),
        ({"xlm-roberta": 256}, 256),
        ({"xlnet": 64, "distilbert": 32}, 32),
        ({"albert": 16, "bert": 8, "camembert": 4}, 8),
        ({"bert": None, "camembert": 4}, 4),
    ],
)
def test_the_length_is_in_the_first_file_that_says_anything(files: dict[str, int | None], length: int) -> None:
    content = {
        f"sentence_{kind}_config.json": {} if most is None else {"max_seq_length": most, "do_lower_case": True}
        for kind, most in files.items()
    }
    read = read_settings("acme/encoder", Use.CLASSIFICATION, content.get)
    assert (read.max_tokens, read.lowercase) == (length, True)


@pytest.mark.parametrize(
    ("config", "readable"),
    [
        ({"model_type": "bert", "max_position_embeddings": 512, "pad_token_id": 0}, 512),
        ({"model_type": "xlm-roberta", "max_position_embeddings": 514, "pad_token_id": 1}, 512),
        ({"model_type": "mpnet", "max_position_embeddings": 514, "pad_token_id": 1}, 512),
        ({"model_type": "roberta", "max_position_embeddings": 514}, 512),
        ({"model_type": "deberta-v2"}, None),
    ],
)
def test_positions_begin_after_the_padding_token_where_a_model_counts_so(
    config: dict[str, Any], readable: int | None
) -> None:
    assert readable_tokens(config) == readable


@pytest.mark.parametrize(
    ("files", "word"),
    [
        ({"modules": [*MODULES, {"type": "sentence_transformers.models.Dense", "path": "3_Dense"}]}, "Dense"),
        ({"modules": [{"type": "sentence_transformers.models.StaticEmbedding", "path": ""}]}, "StaticEmbedding"),
        ({"modules": [MODULES[0] | {"path": "transformer"}, MODULES[1]]}, "'transformer'"),
        ({"modules": [MODULES[0] | {"type": "custom_st.Transformer"}, *MODULES[1:]]}, "modules custom_st.Transformer,"),
        ({"modules": [MODULES[0], MODULES[1] | {"type": "Pooling"}, MODULES[2] | {"type": "a.Normalize"}]}, "a.Norm"),
        ({"pooling": {"pooling_mode": ["cls", "mean"]}}, "cls + mean"),
        ({"pooling": {"pooling_mode_cls_token": True, "pooling_mode_max_tokens": True}}, "cls + max"),
        ({"pooling": {"pooling_mode": "median"}}, "median"),
        ({"pooling": None}, "1_Pooling/config.json"),
        ({"pooling": {"include_prompt": False}, "prompts": {"prompts": {"classification": "x"}}}, "include_prompt"),
        ({"prompts": {"prompts": {"classification": "x" * 1001}}}, "1,001"),
    ],
)
def test_what_is_not_computed_is_refused_by_name(files: dict[str, Any], word: str) -> None:
    with pytest.raises(UnsupportedEncoder, match=word.replace("+", r"\+")) as caught:
        settings(**files)
    assert caught.value.code == "base_unsupported"
    assert "acme/encoder" in caught.value.message
