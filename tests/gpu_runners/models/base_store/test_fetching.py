"""Bases fetched from a hub on loopback by the hub's own library: what comes, what is refused, and with which words."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu_runners.config import HubConfig
from gpu_runners.distill.causal.train import distill_causal
from gpu_runners.errors import JobFailed
from gpu_runners.models.base_store import fetching
from gpu_runners.models.base_store.cache import BaseCache
from gpu_runners.models.base_store.fetching import fetch
from gpu_runners.models.causal_base import open_causal_base
from tests.doubles.model_hub import ModelHub, Repository, commit_of, model_hub
from tests.gpu_runners.distill.causal.small_answers import jsonl, make_job, rows
from tests.gpu_runners.small_base import make_sharded

NAME = "owner/small"


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base of the Qwen2 kind in several shards, as transformers writes them, with what repositories have beside."""
    base = make_sharded(tmp_path_factory.mktemp("made") / "small")
    for file in ("pytorch_model.bin", "modeling_own.py", "consolidated.safetensors", "README.md"):
        (base.folder / file).write_bytes(b"not to be fetched")
    (base.folder / "onnx").mkdir()
    (base.folder / "onnx" / "model.safetensors").write_bytes(b"nor this")
    return base.folder


@pytest.fixture
def hub(sharded: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelHub]:
    """A hub that has `owner/small`, and a library that may ask it: tests run offline else."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr(fetching, "RETRY_S", (0.0, 0.0))
    with model_hub() as running:
        running.add(NAME, sharded)
        yield running


@pytest.fixture
def config(hub: ModelHub, tmp_path: Path) -> HubConfig:
    return config_of(hub, tmp_path)


def config_of(
    hub: ModelHub, tmp_path: Path, *, is_offline: bool = False, token: str = "", cache_bytes: int | None = None
) -> HubConfig:
    return HubConfig(
        is_offline=is_offline, endpoint=hub.url, token=token, cache=tmp_path / "cache", cache_bytes=cache_bytes
    )


def refused(name: str, config: HubConfig) -> JobFailed:
    with pytest.raises(JobFailed) as caught:
        fetch(name, config)
    return caught.value


def files_at(hub: ModelHub) -> dict[str, bytes]:
    return hub.repositories[NAME].revisions["main"]


def change_config(hub: ModelHub, **changes: object) -> None:
    files_at(hub)["config.json"] = json.dumps(json.loads(files_at(hub)["config.json"]) | changes).encode()


def test_a_sharded_base_comes_whole_and_nothing_else_does(hub: ModelHub, config: HubConfig, sharded: Path) -> None:
    folder, _ = fetch(NAME, config)
    here = {path.name for path in folder.iterdir() if path.is_file()}
    shards = {path.name for path in sharded.glob("model-*.safetensors")}
    assert len(shards) > 2
    assert here == shards | {
        "config.json",
        "generation_config.json",
        "model.safetensors.index.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
    }
    assert all((folder / name).read_bytes() == (sharded / name).read_bytes() for name in here)


def test_a_base_is_fetched_once(hub: ModelHub, config: HubConfig) -> None:
    first, _ = fetch(NAME, config)
    n = len(hub.requests)
    assert fetch(NAME, config)[0] == first
    assert len(hub.requests) == n


def test_a_pin_fetches_that_revision_and_no_other(hub: ModelHub, config: HubConfig) -> None:
    old = dict(files_at(hub))
    hub.repositories[NAME].revisions["v1"] = old
    hub.repositories[NAME].revisions["main"] = old | {"generation_config.json": b'{"eos_token_id": 1}'}
    for pin in ("v1", commit_of(old)):
        folder, _ = fetch(f"{NAME}@{pin}", config)
        assert folder.name == commit_of(old)
    assert (fetch(NAME, config)[0] / "generation_config.json").read_bytes() == b'{"eos_token_id": 1}'


def test_a_revision_or_a_repository_that_the_hub_does_not_have_is_unknown(config: HubConfig) -> None:
    for name, word in ((f"{NAME}@v9", "revision"), ("owner/nothing", "repository"), ("nothing", "repository")):
        error = refused(name, config)
        assert (error.code, error.retryable) == ("unknown_base", False)
        assert word in error.message


def test_a_gated_base_says_what_to_accept_and_comes_with_a_token(hub: ModelHub, tmp_path: Path) -> None:
    hub.repositories[NAME].is_gated = True
    error = refused(NAME, config_of(hub, tmp_path))
    assert (error.code, "HF_TOKEN" in error.message) == ("gated_base", True)
    fetch(NAME, config_of(hub, tmp_path, token="hf_secret"))
    assert hub.tokens == {"hf_secret"}


def test_a_private_repository_is_refused_whatever_the_token_may_read(hub: ModelHub, tmp_path: Path) -> None:
    hub.repositories[NAME].is_private = True
    assert refused(NAME, config_of(hub, tmp_path, token="hf_secret")).code == "unknown_base"
    assert hub.fetched() == []


def test_a_base_that_is_larger_than_the_disk_is_refused_before_a_byte_of_it(hub: ModelHub, config: HubConfig) -> None:
    shard = next(name for name in files_at(hub) if name.startswith("model-"))
    hub.repositories[NAME].announces = {shard: 1 << 50}
    error = refused(NAME, config)
    assert (error.code, error.retryable, hub.fetched()) == ("base_too_large", False, [])
    assert "larger disk" in error.message


def test_a_base_that_is_larger_than_the_cache_may_be_is_refused(hub: ModelHub, tmp_path: Path) -> None:
    error = refused(NAME, config_of(hub, tmp_path, cache_bytes=10_000))
    assert (error.code, "KOLM_BASE_CACHE_BYTES" in error.message) == ("base_too_large", True)
    assert hub.fetched() == []


def test_a_base_without_a_fast_tokenizer_is_refused_before_its_weights(hub: ModelHub, config: HubConfig) -> None:
    del files_at(hub)["tokenizer.json"]
    assert (refused(NAME, config).code, hub.fetched()) == ("base_without_tokenizer", [])


def test_a_base_of_pickles_alone_is_refused(hub: ModelHub, config: HubConfig) -> None:
    hub.repositories[NAME].revisions["main"] = {n: d for n, d in files_at(hub).items() if "safetensors" not in n}
    error = refused(NAME, config)
    assert (error.code, "safetensors" in error.message) == ("unknown_base", True)


def test_a_repository_that_is_no_model_is_refused(hub: ModelHub, config: HubConfig) -> None:
    hub.repositories["owner/data"] = Repository(revisions={"main": {"README.md": b"rows"}})
    assert refused("owner/data", config).code == "unknown_base"


def test_a_base_with_code_of_its_own_is_refused_before_its_weights(hub: ModelHub, config: HubConfig) -> None:
    change_config(hub, model_type="own", auto_map={"AutoModelForCausalLM": "modeling_own.OwnForCausalLM"})
    assert refused(NAME, config).code == "base_needs_remote_code"
    assert not [file for file in hub.fetched() if file.endswith((".safetensors", ".py"))]


def test_code_that_is_not_needed_is_neither_fetched_nor_a_reason_to_refuse(hub: ModelHub, config: HubConfig) -> None:
    change_config(hub, auto_map={"AutoModelForCausalLM": "modeling_own.Qwen2ForCausalLM"})
    fetch(NAME, config)
    assert "modeling_own.py" not in hub.fetched()


@pytest.mark.parametrize(
    "changes", [{"hidden_size": 128}, {"vocab_size": 17}, {"num_hidden_layers": 12}, {"hidden_size": 32}]
)
def test_weights_of_another_architecture_than_declared_are_refused(
    hub: ModelHub, config: HubConfig, changes: dict[str, int]
) -> None:
    change_config(hub, **changes)
    assert refused(NAME, config).code == "base_wrong_architecture"


def test_a_shard_that_ends_early_as_published_is_truncated(hub: ModelHub, config: HubConfig) -> None:
    shard = max(name for name in files_at(hub) if name.startswith("model-"))
    files_at(hub)[shard] = files_at(hub)[shard][:-100]
    error = refused(NAME, config)
    assert (error.code, error.retryable, shard in error.message) == ("base_truncated", False, True)
    assert BaseCache(config.cache).take(NAME) is None


def test_a_shard_whose_header_lies_is_not_kept(hub: ModelHub, config: HubConfig) -> None:
    shard = max(name for name in files_at(hub) if name.startswith("model-"))
    files_at(hub)[shard] = files_at(hub)[shard].replace(b'"F32"', b'"F16"', 1)
    error = refused(NAME, config)
    assert (error.code, error.retryable, shard in error.message) == ("base_truncated", False, True)
    assert BaseCache(config.cache).take(NAME) is None


def test_a_shard_that_the_index_names_and_nobody_has_is_truncated(hub: ModelHub, config: HubConfig) -> None:
    shard = max(name for name in files_at(hub) if name.startswith("model-"))
    del files_at(hub)[shard]
    error = refused(NAME, config)
    assert (error.code, shard in error.message) == ("base_truncated", True)


@pytest.mark.parametrize("index", [b"{", b"[]", b'{"weight_map": {}}', b'{"weight_map": {"a": "../x.safetensors"}}'])
def test_an_index_that_names_nothing_usable_is_truncated(hub: ModelHub, config: HubConfig, index: bytes) -> None:
    files_at(hub)["model.safetensors.index.json"] = index
    assert refused(NAME, config).code == "base_truncated"


def test_a_hub_that_fails_twice_is_asked_again(hub: ModelHub, config: HubConfig) -> None:
    hub.repositories[NAME].fails = 2
    folder, _ = fetch(NAME, config)
    assert (folder / "config.json").is_file()


def test_a_hub_that_does_not_answer_is_our_error_and_the_job_comes_again(hub: ModelHub, config: HubConfig) -> None:
    hub.repositories[NAME].fails = 1000
    error = refused(NAME, config)
    assert (error.code, error.retryable) == ("hub_unavailable", True)
    nobody = HubConfig(is_offline=False, endpoint="http://127.0.0.1:1", token="", cache=config.cache, cache_bytes=None)
    assert refused(NAME, nobody).code == "hub_unavailable"


@pytest.mark.nightly
def test_a_line_that_is_cut_costs_what_came_to_nobody(hub: ModelHub, config: HubConfig) -> None:
    shard = max(name for name in files_at(hub) if name.startswith("model-"))
    hub.repositories[NAME].cuts = {shard: 1000}
    error = refused(NAME, config)
    assert (error.code, error.retryable) == ("hub_unavailable", True)
    hub.repositories[NAME].cuts = {}
    before = len(hub.fetched())
    fetch(NAME, config)
    assert hub.fetched()[before:] == [shard], "what was whole is fetched again"


def test_offline_a_fetched_base_is_used_and_no_other_is_asked_for(
    hub: ModelHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "none"))
    offline = config_of(hub, tmp_path, is_offline=True)
    error = refused(NAME, offline)
    assert (error.code, hub.requests) == ("unknown_base", [])
    assert re.search(r"HF_HUB_OFFLINE.*KOLM_BASE_DIR", error.message)
    fetch(NAME, config_of(hub, tmp_path))
    n = len(hub.requests)
    fetch(NAME, offline)
    assert len(hub.requests) == n


def test_a_new_base_takes_the_place_of_the_one_that_was_used_longest_ago(hub: ModelHub, tmp_path: Path) -> None:
    for name in ("owner/second", "owner/third"):
        hub.repositories[name] = Repository(revisions=dict(hub.repositories[NAME].revisions))
    size = sum(len(files_at(hub)[file]) for file in files_at(hub) if file.startswith("model-"))
    config = config_of(hub, tmp_path, cache_bytes=size * 5 // 2)
    for name in (NAME, "owner/second"):
        fetch(name, config)
    fetch(NAME, config)
    fetch("owner/third", config)
    cache = BaseCache(config.cache)
    assert [cache.take(name) is not None for name in (NAME, "owner/second", "owner/third")] == [True, False, True]


def test_a_base_in_use_is_never_evicted(hub: ModelHub, tmp_path: Path) -> None:
    hub.repositories["owner/second"] = Repository(revisions=dict(hub.repositories[NAME].revisions))
    size = sum(len(files_at(hub)[file]) for file in files_at(hub) if file.startswith("model-"))
    config = config_of(hub, tmp_path, cache_bytes=size * 3 // 2)
    folder, hold = fetch(NAME, config)
    error = refused("owner/second", config)
    assert (error.code, error.retryable, folder.is_dir()) == ("base_cache_full", True, True)
    del hold
    fetch("owner/second", config)
    assert not folder.exists()


def test_a_disk_that_takes_nothing_is_our_error(hub: ModelHub, config: HubConfig) -> None:
    config.cache.write_text("a file where the folder should be")
    error = refused(NAME, config)
    assert (error.code, error.retryable) == ("base_cache_failed", True)


def test_a_fetched_base_is_opened_and_trains_as_one_that_was_put_there(
    hub: ModelHub, sharded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", "KOLM_BASE_CACHE": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    fetched = open_causal_base(f"{NAME}@main")
    by_hand = open_causal_base("small", base_dir=sharded.parent)
    assert (fetched.sha256, fetched.tokenizer_sha256) == (by_hand.sha256, by_hand.tokenizer_sha256)
    assert fetched.base.hold is not None
    _, result = distill_causal(make_job(fetched, epochs=1), jsonl(rows()), base=fetched)
    assert result.base_model_sha256 == by_hand.sha256


def test_the_token_is_in_no_text_of_the_settings(hub: ModelHub, tmp_path: Path) -> None:
    assert "hf_secret" not in repr(config_of(hub, tmp_path, token="hf_secret"))
