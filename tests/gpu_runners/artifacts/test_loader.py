"""The bases that a loader keeps: the oldest leaves with its engine and its place in the base cache."""

import fcntl
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu_runners.artifacts.loader import Loader
from gpu_runners.engine.sync import generate_all
from gpu_runners.models.base_store import fetching
from gpu_runners.models.base_store.cache import BaseCache, Hold
from gpu_runners.models.protocol import EngineFailed, GenerationRequest
from tests.doubles.model_hub import ModelHub, model_hub
from tests.gpu_runners.small_base import make_base
from tests.gpu_runners.small_encoders import make_encoder

ONE, TWO = "owner/one", "owner/two"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelHub]:
    """A hub with two encoders, which this machine's base cache may fetch."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr(fetching, "RETRY_S", (0.0, 0.0))
    folder = make_encoder(tmp_path / "encoder")
    with model_hub() as running:
        running.add(ONE, folder)
        running.add(TWO, folder)
        cache = {"HF_ENDPOINT": running.url, "HF_HUB_OFFLINE": "0", "KOLM_BASE_CACHE": str(tmp_path / "cache")}
        for name, value in cache.items():
            monkeypatch.setenv(name, value)
        yield running


def is_in_use(tmp_path: Path, name: str) -> bool:
    hold = Hold(tmp_path / "cache" / f"{name.replace('/', '--')}.lock")
    try:
        return not hold.lock(fcntl.LOCK_EX)
    finally:
        hold.release()


@pytest.mark.usefixtures("hub")
def test_a_base_too_many_sends_the_oldest_away_and_frees_its_place_in_the_cache(tmp_path: Path) -> None:
    loader = Loader(keyring=None, base_dir=None, keep_bases=1)
    loader.base(ONE)
    assert is_in_use(tmp_path, ONE)
    loader.base(TWO)
    assert (is_in_use(tmp_path, ONE), is_in_use(tmp_path, TWO)) == (False, True)


@pytest.mark.nightly
def test_bases_in_memory_do_not_fill_the_cache_for_ever(
    hub: ModelHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = sum(map(len, hub.repositories[ONE].revisions["main"].values()))
    monkeypatch.setenv("KOLM_BASE_CACHE_BYTES", str(size * 3 // 2))
    loader = Loader(keyring=None, base_dir=None)
    loader.base(ONE)
    loader.base(TWO)
    assert BaseCache(tmp_path / "cache").whole_bases() == [TWO]


@pytest.mark.nightly
def test_the_engine_of_a_base_that_leaves_is_stopped(tmp_path: Path) -> None:
    for name in ("one", "two"):
        make_base(tmp_path / name)
    loader = Loader(keyring=None, base_dir=tmp_path, keep_bases=1)
    _, engine = loader.engine("one")
    loader.engine("two")
    with pytest.raises(EngineFailed, match="stopped"):
        generate_all(engine, [GenerationRequest(id="0", prompt=(1, 2), max_new_tokens=1)])
    assert loader.engine("two")[1] is loader.engine("two")[1]
    loader.close()
