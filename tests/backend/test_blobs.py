"""The blob store: what it holds outlives power cuts and sweeps, and a disk that is away is nobody's fault."""

import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.test import Client

from backend import blobs
from backend.blobs import (
    LATELY_S,
    BlobWriter,
    blob_parts,
    blob_size,
    get_blob,
    has_blob,
    probe_store,
    put_blob,
    require_store,
    sweep_blob,
)
from backend.domain.errors import NotFound, Unavailable
from tests.factories import bearer, make_api_key, make_tenant

TENANT = UUID(int=7)


@pytest.fixture
def root(settings, tmp_path: Path) -> Path:
    settings.KOLM_BLOB_DIR = tmp_path / "blobs"
    settings.KOLM_BLOB_DIR.mkdir()
    return settings.KOLM_BLOB_DIR


@pytest.fixture
def small_disk(root: Path) -> Iterator[Path]:
    """A file system of 1 MB at the root."""
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", root]).returncode:
        pytest.skip("only who may mount a file system can fill one up")
    try:
        yield root
    finally:
        subprocess.run(["umount", root], check=True)


def path_of(root: Path, digest: str) -> Path:
    return root / str(TENANT) / digest[:2] / digest


def age(root: Path, digest: str) -> None:
    """As if it had been stored long ago."""
    past = time.time() - 2 * LATELY_S
    os.utime(path_of(root, digest), (past, past))


def test_a_blob_that_is_stored_again_outlives_the_sweep_that_had_decided_on_it(root: Path):
    digest = put_blob(TENANT, b"once named")
    age(root, digest)
    # here the sweep finds no row that names it; before it commits, somebody stores the same bytes
    assert put_blob(TENANT, b"once named") == digest
    assert sweep_blob(TENANT, digest) is False
    assert get_blob(TENANT, digest) == b"once named"
    age(root, digest)
    assert sweep_blob(TENANT, digest) is True
    assert not has_blob(TENANT, digest)
    assert sweep_blob(TENANT, digest) is True, "what is gone is gone"


def test_what_a_put_has_returned_no_sweep_at_the_same_time_deletes(root: Path):
    """Sweepers take what is old, putters put it back: a digest that put_blob gave is there, every time."""
    data = [f"blob {n}".encode() for n in range(4)]
    digests = [put_blob(TENANT, one) for one in data]
    ended, swept, lost = threading.Event(), threading.Event(), []

    def sweep() -> None:
        while not ended.is_set():
            for digest in digests:
                if has_blob(TENANT, digest) and sweep_blob(TENANT, digest):
                    swept.set()

    def put() -> None:
        for n in range(150):
            one, digest = data[n % 4], digests[n % 4]
            swept.clear()
            age(root, digest)
            if (
                n % 10 == 0
            ):  # nine in ten race, and one makes sure that the sweepers are at work, however busy the machine
                assert swept.wait(60)
            put_blob(TENANT, one)
            if not has_blob(TENANT, digest):
                lost.append(digest)

    sweepers = [threading.Thread(target=sweep) for _ in range(2)]
    for thread in sweepers:
        thread.start()
    try:
        put()
    finally:
        ended.set()
        for thread in sweepers:
            thread.join()
    assert lost == []


def test_a_put_that_meets_a_sweep_in_the_act_stores_the_bytes_anew(root: Path):
    digest = put_blob(TENANT, b"x")
    age(root, digest)
    stored = threading.Event()
    with blobs._lock(path_of(root, digest)):  # where a sweep is, between its look and its deletion
        putter = threading.Thread(target=lambda: (put_blob(TENANT, b"x"), stored.set()))
        putter.start()
        assert not stored.wait(0.2)
        path_of(root, digest).unlink()
    putter.join()
    assert get_blob(TENANT, digest) == b"x"


def test_a_sweep_that_comes_second_leaves_what_was_stored_after_the_first(root: Path):
    digest = put_blob(TENANT, b"x")
    age(root, digest)
    with blobs._lock(path_of(root, digest)):
        second = threading.Thread(target=sweep_blob, args=(TENANT, digest))
        second.start()
        second.join(0.5)  # it has the old file open and waits
        assert second.is_alive()
        path_of(root, digest).unlink()
        put_blob(TENANT, b"x")
    second.join()
    assert get_blob(TENANT, digest) == b"x"


def test_a_writer_that_meets_a_sweep_in_the_act_stores_the_bytes_anew(root: Path):
    digest = put_blob(TENANT, b"x")
    age(root, digest)
    stored = threading.Event()

    def write() -> None:
        with BlobWriter(TENANT) as writer:
            writer.write(b"x")
            assert writer.keep() == digest
        stored.set()

    with blobs._lock(path_of(root, digest)):
        writing = threading.Thread(target=write)
        writing.start()
        assert not stored.wait(0.2)
        path_of(root, digest).unlink()
    writing.join()
    assert get_blob(TENANT, digest) == b"x"
    assert [path.name for path in (root / str(TENANT)).rglob("*") if path.is_file()] == [digest]


def test_a_writer_renews_what_is_there(root: Path):
    digest = put_blob(TENANT, b"x")
    age(root, digest)
    with BlobWriter(TENANT) as writer:
        writer.write(b"x")
        writer.keep()
    assert sweep_blob(TENANT, digest) is False
    assert [path.name for path in (root / str(TENANT)).rglob("*") if path.is_file()] == [digest]


def test_a_name_is_on_the_disk_when_put_returns(root: Path):
    """As the kernel was asked: the file's bytes, its name, and the folders that were made for it."""
    code = (
        "import os, django; os.environ['DJANGO_SETTINGS_MODULE'] = 'backend.settings'; django.setup();"
        "from uuid import UUID; from django.conf import settings; from backend import blobs;"
        f"settings.KOLM_BLOB_DIR = {str(root)!r}; seen = []; sync, replace = os.fsync, os.replace;"
        "os.fsync = lambda n: (seen.append(os.readlink(f'/proc/self/fd/{n}')), sync(n))[1];"
        "os.replace = lambda a, b: (seen.append('replace'), replace(a, b))[1];"
        "digest = blobs.put_blob(UUID(int=7), b'x'); print(digest, *seen, sep='\\n')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    digest, *seen = done.stdout.split()
    folder = path_of(root, digest).parent
    assert seen[:2] == [str(root), str(folder.parent)], "the folders' own names"
    assert seen[2].startswith(str(folder))
    assert seen[3:] == ["replace", str(folder)]


def test_a_put_waits_until_the_name_of_another_put_is_on_the_disk(root: Path, monkeypatch: pytest.MonkeyPatch):
    """Or it would return, its row would be committed, and a power cut could take the name."""
    named, may_sync, stored = threading.Event(), threading.Event(), threading.Event()
    sync = os.fsync

    def slow(number: int) -> None:
        if os.path.samestat(os.fstat(number), folder.stat()):
            named.set()
            assert may_sync.wait(30)
        sync(number)

    folder = path_of(root, hashlib.sha256(b"x").hexdigest()).parent
    folder.mkdir(parents=True)
    monkeypatch.setattr(os, "fsync", slow)
    first = threading.Thread(target=put_blob, args=(TENANT, b"x"))
    second = threading.Thread(target=lambda: (put_blob(TENANT, b"x"), stored.set()))
    first.start()
    assert named.wait(30)
    second.start()
    assert not stored.wait(0.2)
    may_sync.set()
    first.join()
    second.join()
    assert stored.is_set()


def everything(digest: str) -> list[object]:
    return [
        lambda: put_blob(TENANT, b"new"),
        lambda: put_blob(TENANT, b"old"),
        lambda: get_blob(TENANT, digest),
        lambda: blob_size(TENANT, digest),
        lambda: next(blob_parts(TENANT, digest)),
        lambda: has_blob(TENANT, digest),
        lambda: BlobWriter(TENANT),
        require_store,
        probe_store,
    ]


@pytest.mark.parametrize("instead", ["nothing", "file", "empty"])
def test_a_disk_that_is_away_is_unavailable_whatever_is_asked(root: Path, instead: str):
    digest = put_blob(TENANT, b"old")
    root.rename(away := root.with_name("away"))
    if instead == "file":
        root.write_text("no folder")
    for n, ask in enumerate(everything(digest)):
        if instead == "empty":  # a mount point without its disk: what is there says that something is missing
            root.mkdir(exist_ok=True)
            if n not in (2, 3, 4):
                continue
        with pytest.raises(Unavailable) as caught:
            ask()
        assert caught.value.code == "blob_store_unavailable"
    if instead == "nothing":
        assert not root.exists(), "nobody makes a root where the disk was"
    root.unlink() if instead == "file" else root.rmdir() if instead == "empty" else None
    away.rename(root)
    assert get_blob(TENANT, digest) == b"old"


def test_a_blob_that_is_missing_on_a_good_disk_is_not_found(root: Path):
    put_blob(TENANT, b"old")
    with pytest.raises(NotFound):
        get_blob(TENANT, "0" * 64)
    assert not has_blob(uuid4(), "0" * 64)


def write_in_parts(n_bytes: int) -> str:
    with BlobWriter(TENANT) as writer:
        for _ in range(0, n_bytes, 65_536):
            writer.write(os.urandom(65_536))
        return writer.keep()


def test_a_full_disk_says_so_and_keeps_no_halves(small_disk: Path):
    digest = put_blob(TENANT, b"old")
    with pytest.raises(Unavailable) as caught:
        put_blob(TENANT, os.urandom(2_000_000))
    assert caught.value.code == "blob_store_full"
    with pytest.raises(Unavailable) as caught:
        write_in_parts(2_000_000)
    assert caught.value.code == "blob_store_full"
    assert [path.name for path in small_disk.rglob("*") if path.is_file()] == [digest]
    assert get_blob(TENANT, digest) == b"old"
    put_blob(TENANT, b"there is room again")


@pytest.mark.usefixtures("committed_db")
def test_an_upload_to_a_full_disk_is_to_be_sent_again_when_there_is_room(small_disk: Path):
    tenant = make_tenant()
    secret = make_api_key(tenant)
    (filler := small_disk / "filler").write_bytes(bytes(1 << 20))
    address = "/v1/uploads?purpose=captures"

    def upload() -> Any:
        body, kind = b'{"input": "where is it"}\n', "application/x-ndjson"
        return Client().post(address, body, content_type=kind, headers=bearer(secret))

    full = upload()
    assert (full.status_code, full.json()["code"]) == (507, "blob_store_full")
    assert full.json()["retryable"] is True
    assert int(full.headers["Retry-After"]) > 0
    assert Client().get("/readyz").json()["blobs"] == "down"
    filler.unlink()
    assert upload().status_code == 201
    assert Client().get("/readyz").json()["blobs"] == "ok"


def test_a_disk_that_is_read_only_still_gives_what_it_has(small_disk: Path):
    digest = put_blob(TENANT, b"old")
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    assert get_blob(TENANT, digest) == b"old"
    assert has_blob(TENANT, digest)
    for ask in (lambda: put_blob(TENANT, b"new"), probe_store, lambda: sweep_blob(TENANT, digest)):
        with pytest.raises(Unavailable):
            ask()
    subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    put_blob(TENANT, b"new")
