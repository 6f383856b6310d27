"""The base cache across processes: who holds a base, what a crash leaves, what is counted."""

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from gpu_runners.errors import JobFailed
from gpu_runners.models.base_store.cache import BaseCache

HOLDER = """
import sys, time
from pathlib import Path
from gpu_runners.models.base_store.cache import BaseCache
cache = BaseCache(Path(sys.argv[1]), limit=100, reserve=0)
if sys.argv[2] == "use":
    held = cache.take("a/one")
    print("held", flush=True)
    time.sleep(600)
with cache.filling("a/one"):
    folder = cache.make_room("a/one", "c1", 90)
    (folder / "part").write_bytes(b"x" * 40)
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def cache(tmp_path: Path) -> BaseCache:
    return BaseCache(tmp_path, limit=100, reserve=0)


def fill(cache: BaseCache, name: str, size: int, *, commit: str = "c1") -> None:
    with cache.filling(name):
        (cache.make_room(name, commit, size) / "weights").write_bytes(b"x" * size)
        cache.keep(name, commit, size)


def start(root: Path, act: str) -> "subprocess.Popen[str]":
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(root), act], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()


def test_another_process_keeps_what_it_uses_until_it_dies(cache: BaseCache, tmp_path: Path) -> None:
    fill(cache, "a/one", 90)
    process = start(tmp_path, "use")
    with cache.filling("a/two"), pytest.raises(JobFailed) as refused:
        cache.make_room("a/two", "c1", 50)
    assert refused.value.code == "base_cache_full"
    end(process)
    fill(cache, "a/two", 50)
    assert cache.take("a/one") is None


def test_what_is_in_use_is_no_room_for_another(cache: BaseCache) -> None:
    fill(cache, "a/one", 60)
    assert cache.room() == 100
    held = cache.take("a/one")
    assert cache.room() == 40
    cache.check_room("a/two", 40)
    with pytest.raises(JobFailed) as refused:
        cache.check_room("a/two", 50)
    assert (refused.value.code, refused.value.retryable) == ("base_cache_full", True)
    cache.check_room("a/one", 90)
    del held
    cache.check_room("a/two", 50)


def test_a_fetch_that_died_is_evicted_and_can_go_on(cache: BaseCache, tmp_path: Path) -> None:
    process = start(tmp_path, "fetch")
    with cache.filling("a/two"), pytest.raises(JobFailed):
        cache.make_room("a/two", "c1", 50)
    end(process)
    with cache.filling("a/one"):
        assert not cache.is_whole("a/one")
        assert (cache.make_room("a/one", "c1", 90) / "part").stat().st_size == 40
    fill(cache, "a/two", 50)
    assert not (tmp_path / "a--one").exists()


def test_who_asks_while_another_fetches_waits_and_gets_it(cache: BaseCache) -> None:
    got: list[bool] = []

    def ask() -> None:
        got.append(cache.take("a/one") is not None)

    with cache.filling("a/one"):
        folder = cache.make_room("a/one", "c1", 10)
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join(timeout=0.3)
        assert thread.is_alive()
        (folder / "weights").write_bytes(b"x" * 10)
        cache.keep("a/one", "c1", 10)
    thread.join()
    assert got == [True]


def test_another_commit_of_a_name_takes_the_place_of_the_first(cache: BaseCache, tmp_path: Path) -> None:
    fill(cache, "a/one", 60)
    fill(cache, "a/one", 70, commit="c2")
    assert [path.name for path in (tmp_path / "a--one").iterdir()] == ["c2"]


def test_two_revisions_of_a_base_are_two_bases(cache: BaseCache) -> None:
    fill(cache, "a/one", 40)
    fill(cache, "a/one@v1", 40, commit="c2")
    folders = [held[0].name for held in map(cache.take, ("a/one", "a/one@v1")) if held]
    assert folders == ["c1", "c2"]


@pytest.mark.parametrize("damage", [lambda p: p.write_text("{"), lambda p: p.write_text("[]"), lambda p: p.unlink()])
def test_a_record_that_cannot_be_read_is_a_base_that_is_not_here(
    cache: BaseCache, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    fill(cache, "a/one", 10)
    damage(tmp_path / "a--one.json")
    assert cache.take("a/one") is None
    fill(cache, "a/one", 10)
    assert cache.take("a/one") is not None


def test_a_disk_that_is_full_but_for_its_reserve_takes_no_base(tmp_path: Path) -> None:
    cache = BaseCache(tmp_path, reserve=1 << 60)
    with cache.filling("a/one"), pytest.raises(JobFailed) as refused:
        cache.make_room("a/one", "c1", 1)
    assert refused.value.code == "base_too_large"
