"""A look at a base: on this machine by its files, on a hub by what that announces; no weights are fetched."""

import dataclasses
import json
import re
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from backend.domain.encoders.card_prefixes import Use
from backend.domain.encoders.sentence_settings import read_settings
from backend.domain.jobs.base_checks import CheckBaseJob, CheckBaseResult
from backend.domain.planning.adapter_sizes import PARAMETERS_A_RANK, lora_parameters, parameters_a_rank
from gpu_runners.config import HubConfig
from gpu_runners.engine.torch_engine import TorchEngine
from gpu_runners.errors import JobFailed
from gpu_runners.models.base_checks import look_at_base
from gpu_runners.models.base_store import fetching
from gpu_runners.models.base_store.fetching import fetch
from gpu_runners.models.base_store.files import read_optional
from gpu_runners.models.base_store.refusals import NO_BACKEND, READ_OF, causal_refusal
from gpu_runners.models.bases import MINILM, TINY, installed_folder
from gpu_runners.models.lora_shapes import linear_shapes
from tests.doubles.model_hub import ModelHub, model_hub
from tests.gpu_runners.small_base import make_base, make_sharded
from tests.gpu_runners.small_encoders import make_encoder

NAME = "owner/small"


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_sharded(tmp_path_factory.mktemp("made") / "small").folder


@pytest.fixture
def hub(sharded: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelHub]:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr(fetching, "RETRY_S", (0.0, 0.0))
    with model_hub() as running:
        running.add(NAME, sharded)
        yield running


@pytest.fixture
def config(hub: ModelHub, tmp_path: Path) -> HubConfig:
    return HubConfig(is_offline=False, endpoint=hub.url, token="", cache=tmp_path / "cache", cache_bytes=None)


def look(config: HubConfig, name: str = NAME, *, kind: str = "causal", base_dir: Path | None = None) -> CheckBaseResult:
    return look_at_base(CheckBaseJob(base_model=name, kind=kind), base_dir=base_dir, hub=config)


def test_a_base_on_the_hub_is_known_without_its_weights(config: HubConfig, hub: ModelHub, sharded: Path) -> None:
    found = look(config)
    assert (found.code, found.is_here) == ("", False)
    assert set(hub.fetched()) == {"config.json", "model.safetensors.index.json", *READ_OF["causal"]}
    declared = json.loads((sharded / "config.json").read_text())
    per_layer = sum(map(sum, linear_shapes(declared).values()))
    assert found.adapter_parameters == per_layer * declared["num_hidden_layers"]
    assert lora_parameters(found.config, rank=1) == found.adapter_parameters, "what sizes are counted from crosses too"
    weights = sum(path.stat().st_size for path in sharded.glob("model-*.safetensors"))
    assert found.size_bytes > weights
    assert not list(config.cache.glob("*/*/*.safetensors"))


def test_a_base_that_is_here_is_counted_by_its_files_and_the_hub_is_not_asked(
    config: HubConfig, hub: ModelHub, sharded: Path, tmp_path: Path
) -> None:
    announced = look(config)
    fetch(NAME, config)
    asked = len(hub.requests)
    held = look(config)
    assert (held.code, held.is_here, len(hub.requests)) == ("", True, asked)
    assert held.adapter_parameters == announced.adapter_parameters
    # safetensors' headers are not weights; the announced bytes hold them
    assert held.n_parameters == pytest.approx(announced.n_parameters, rel=0.2)
    (tmp_path / "bases" / "mine").parent.mkdir()
    (tmp_path / "bases" / "mine").symlink_to(sharded)
    installed = look(config, "mine", base_dir=tmp_path / "bases")
    assert (installed.is_here, installed.n_parameters) == (True, held.n_parameters)


def test_the_bases_that_come_along_are_here(config: HubConfig, hub: ModelHub) -> None:
    minilm = look(config, MINILM, kind="encoder")
    assert (minilm.code, minilm.is_here) == ("", True)
    assert minilm.adapter_parameters == PARAMETERS_A_RANK[MINILM]
    assert minilm.config == {}, "an encoder is counted by its files' headers"
    assert look(config, TINY).is_here
    assert hub.requests == []


def test_what_a_training_would_meet_is_met_now(config: HubConfig, hub: ModelHub, sharded: Path) -> None:
    files = hub.repositories[NAME].revisions["main"]

    def changed(name: str, change: Any) -> str:
        return look_with({**files, name: change})

    def look_with(these: dict[str, bytes]) -> str:
        hub.add("owner/other", sharded).revisions["main"] = these
        return look(config, "owner/other").code

    declared = json.loads(files["config.json"])
    shard = next(name for name in files if name.startswith("model-"))
    assert look_with({k: v for k, v in files.items() if k != "tokenizer.json"}) == "base_without_tokenizer"
    assert look_with({k: v for k, v in files.items() if k != shard}) == "base_truncated"
    assert look_with({k: v for k, v in files.items() if k != "config.json"}) == "unknown_base"
    remote = declared | {"auto_map": {"AutoModel": "m.M"}, "model_type": "own"}
    assert changed("config.json", json.dumps(remote).encode()) == "base_needs_remote_code"
    deeper = declared | {"num_hidden_layers": 99}
    assert changed("config.json", json.dumps(deeper).encode()) == "base_wrong_architecture"
    encoder = declared | {"architectures": ["BertModel"]}
    assert changed("config.json", json.dumps(encoder).encode()) == "not_causal"
    assert changed("config.json", b"{half") == "base_truncated"
    assert look_with({k: v for k, v in files.items() if k != "chat_template.jinja"}) == "not_causal"
    awq = declared | {"quantization_config": {"quant_method": "awq", "bits": 4}}
    assert changed("config.json", json.dumps(awq).encode()) == "base_unsupported"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"rope_scaling": {"type": "su"}}, "unsupported_base"),
        ({"rope_parameters": {"rope_type": "dynamic"}}, "unsupported_base"),
        ({"rope_scaling": {"rope_type": "yarn"}, "model_type": "phi3"}, "unsupported_base"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, ""),
        ({"layer_types": ["linear_attention", "full_attention"]}, "unsupported_base"),
        ({"layer_types": ["sliding_attention", "full_attention"]}, ""),
        ({"model_type": "gemma2"}, "unsupported_base"),
        ({"model_type": "gemma2", "attn_logit_softcapping": None}, ""),
        ({"model_type": "qwen3_next"}, "unsupported_base"),
        ({"kv_lora_rank": 512}, "unsupported_base"),
        ({"model_type": "gpt_bigcode", "hidden_size": None, "n_embd": 64}, "unsupported_base"),
        ({"vocab_size": "many"}, "unsupported_base"),
        ({"eos_token_id": [1, "<|end|>"]}, "not_causal"),
        ({"eos_token_id": [1, 2]}, ""),
    ],
)
def test_what_our_engine_cannot_run_is_refused_by_the_config(changes: dict[str, Any], code: str) -> None:
    sizes = {"hidden_size": 64, "vocab_size": 100}
    config = {"architectures": ["AnyForCausalLM"], "model_type": "qwen2"} | sizes | changes
    refusal = causal_refusal("owner/any", config, ["chat_template.jinja"], {})
    assert (refusal.code if refusal else "") == code


@pytest.mark.parametrize(
    ("kind", "runs"),
    [
        ("llama", True),
        ("gemma2", False),
        *(pytest.param(kind, False, marks=pytest.mark.nightly) for kind in ("phi3-longrope", "lfm2", "stablelm")),
        *(pytest.param(kind, True, marks=pytest.mark.nightly) for kind in ("phi3", "glm")),
    ],
)
def test_a_look_refuses_what_the_engine_refuses(config: HubConfig, tmp_path: Path, kind: str, runs: bool) -> None:
    base = make_base(tmp_path / kind, kind=kind)
    assert look(config, kind, base_dir=tmp_path).code == ("" if runs else "unsupported_base")
    if runs:
        TorchEngine(base, max_running=1, kv_tokens=64).stop()
        return
    with pytest.raises(JobFailed) as caught:
        TorchEngine(base)
    assert caught.value.code == "unsupported_base"


def test_the_kinds_without_an_attention_backend_are_those_of_the_installed_library() -> None:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    folder = find_spec("transformers")
    assert folder is not None
    assert folder.origin is not None
    has_backend: dict[str, bool] = {}
    for file in Path(folder.origin).parent.glob("models/*/modeling_*.py"):
        text = file.read_text("utf-8")
        is_set = "_supports_attention_backend = True" in text
        has_backend |= dict.fromkeys(re.findall(r"^class (\w+ForCausalLM)\(", text, re.MULTILINE), is_set)
    names = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items()
    assert {kind for kind, name in names if has_backend.get(str(name)) is False} == NO_BACKEND


def test_an_encoder_that_is_not_computed_is_refused_at_a_look(config: HubConfig, hub: ModelHub, tmp_path: Path) -> None:
    repository = hub.add("owner/encoder", make_encoder(tmp_path / "encoder"))
    assert look(config, "owner/encoder", kind="encoder").code == ""
    files = repository.revisions["main"]
    modules = json.loads(files["modules.json"])
    modules.insert(2, {"idx": 2, "name": "2", "path": "2_Dense", "type": "sentence_transformers.models.Dense"})
    repository.revisions["main"] = files | {"modules.json": json.dumps(modules).encode()}
    dense = look(config, "owner/encoder", kind="encoder")
    assert (dense.code, "Dense" in dense.message) == ("base_unsupported", True)
    writes = json.loads(files["config.json"]) | {"is_encoder_decoder": True}
    repository.revisions["main"] = files | {"config.json": json.dumps(writes).encode()}
    assert look(config, "owner/encoder", kind="encoder").code == "base_unsupported"


def test_a_pooling_in_any_folder_is_looked_at_and_fetched(config: HubConfig, hub: ModelHub, tmp_path: Path) -> None:
    files = hub.add("owner/encoder", make_encoder(tmp_path / "encoder")).revisions["main"]
    files["heads/pooling/config.json"] = files.pop("1_Pooling/config.json")
    files["modules.json"] = files["modules.json"].replace(b"1_Pooling", b"./heads/pooling/")
    assert look(config, "owner/encoder", kind="encoder").code == ""
    folder, _ = fetch("owner/encoder", config)
    assert read_settings("owner/encoder", Use.CLASSIFICATION, partial(read_optional, folder)).pooling == "mean"
    files["heads/pooling/config.json"] = b'{"pooling_mode": "median"}'
    refused = look(config, "owner/encoder@main", kind="encoder")
    assert (refused.code, "median" in refused.message) == ("base_unsupported", True)
    files["modules.json"] = files["modules.json"].replace(b"./heads/pooling/", b"../pooling")
    assert look(config, "owner/encoder@main", kind="encoder").code == "base_unsupported"


@pytest.mark.parametrize(
    ("file", "content", "code"),
    [
        ("config.json", b'{"architectures": 5}', "not_causal"),
        (
            "config.json",
            b'{"architectures": ["AForCausalLM"], "model_type": ["a"], "vocab_size": 9, "hidden_size": 8}',
            "base_wrong_architecture",
        ),
        ("config.json", b"[" * 100_000, "base_truncated"),
        ("model.safetensors.index.json", b'{"weight_map": {"a": []}}', "base_truncated"),
        ("model.safetensors.index.json", b'{"weight_map": 5}', "base_truncated"),
        ("tokenizer_config.json", b"[]", "base_truncated"),
        ("generation_config.json", b"[]", "base_truncated"),
        ("generation_config.json", b'{"eos_token_id": "<|end|>"}', "not_causal"),
        ("generation_config.json", b'{"eos_token_id": {"a": 1}}', "not_causal"),
        ("generation_config.json", b'{"eos_token_id": null}', ""),
    ],
)
def test_files_of_any_content_get_a_code(
    config: HubConfig, hub: ModelHub, sharded: Path, file: str, content: bytes, code: str
) -> None:
    hub.add("owner/odd", sharded).revisions["main"][file] = content
    assert look(config, "owner/odd").code == code


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("causal", {"num_attention_heads": "four"}),
        ("encoder", {"num_hidden_layers": 2.5}),
        ("causal", {"max_position_embeddings": {"a": 1}}),
        ("encoder", {"vocab_size": True}),
    ],
)
def test_sizes_that_are_no_numbers_are_refused_at_a_look_and_before_a_fetch(
    config: HubConfig, hub: ModelHub, sharded: Path, kind: str, changes: dict[str, Any]
) -> None:
    files = hub.add("owner/odd", sharded).revisions["main"]
    files["config.json"] = json.dumps(json.loads(files["config.json"]) | changes).encode()
    refused = look(config, "owner/odd", kind=kind)
    assert (refused.code, f"says {next(iter(changes))} is" in refused.message) == ("base_wrong_architecture", True)
    with pytest.raises(JobFailed) as caught:
        fetch("owner/odd", config)
    assert caught.value.message == refused.message
    assert not [file for file in hub.fetched() if file.endswith(".safetensors")]


def test_a_small_file_that_is_large_is_never_fetched(config: HubConfig, hub: ModelHub, sharded: Path) -> None:
    for file in ("config.json", "tokenizer.json", "model.safetensors.index.json", "tokenizer_config.json"):
        hub.add("owner/heavy", sharded).announces[file] = 1 << 30
        refused = look(config, "owner/heavy")
        assert (refused.code, file in refused.message) == ("base_truncated", True)
        with pytest.raises(JobFailed):
            fetch("owner/heavy", config)
    assert hub.fetched() == []


def test_offline_a_name_that_no_hub_has_is_unknown(config: HubConfig) -> None:
    offline = dataclasses.replace(config, is_offline=True)
    assert look(offline, "x/a--b").code == "unknown_base"


def test_who_may_not_have_a_base_is_told_why(config: HubConfig, hub: ModelHub) -> None:
    assert look(config, "no/such").code == "unknown_base"
    assert look(config, "../etc/passwd").code == "unknown_base"
    hub.repositories[NAME].is_gated = True
    assert look(config).code == "gated_base"
    hub.repositories[NAME].is_gated, hub.repositories[NAME].is_private = False, True
    assert look(config).code == "unknown_base"
    offline = dataclasses.replace(config, is_offline=True)
    refused = look(offline, "owner/never-here")
    assert (refused.code, "HF_HUB_OFFLINE" in refused.message) == ("unknown_base", True)


def test_a_base_that_is_larger_than_the_disk_or_a_hub_that_fails_is_told(config: HubConfig, hub: ModelHub) -> None:
    small = dataclasses.replace(config, cache_bytes=1000)
    assert look(small).code == "base_too_large"
    hub.repositories[NAME].fails = 99
    assert look(config).code == "hub_unavailable"


def test_an_encoders_config_counts_the_layers_that_its_files_have(config: HubConfig) -> None:
    """A config of BERT has all the names of Llama's, and one linear layer fewer: on a hub it was counted too large."""
    folder = installed_folder(MINILM, None)
    assert folder is not None
    assert parameters_a_rank(json.loads((folder / "config.json").read_text())) == PARAMETERS_A_RANK[MINILM]
    assert parameters_a_rank({"model_type": "mixtral", "hidden_size": 8}) == 0, "not known, not guessed"
