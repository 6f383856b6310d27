"""A look at a base: on this machine by its files, on a hub by what that announces; no weights are fetched."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backend.domain.jobs.base_checks import CheckBaseJob, CheckBaseResult
from backend.domain.planning.adapter_sizes import PARAMETERS_A_RANK, lora_parameters, parameters_a_rank
from gpu_runners.config import HubConfig
from gpu_runners.models.base_checks import look_at_base
from gpu_runners.models.base_store import fetching
from gpu_runners.models.base_store.fetching import fetch
from gpu_runners.models.bases import MINILM, TINY, installed_folder
from gpu_runners.models.lora_shapes import linear_shapes
from tests.doubles.model_hub import ModelHub, model_hub
from tests.gpu_runners.small_base import make_sharded

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
    assert set(hub.fetched()) == {"config.json", "model.safetensors.index.json"}
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
