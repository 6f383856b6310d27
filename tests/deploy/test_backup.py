"""A backup is whole or none, and a restore goes into an empty home or not at all. (The drill on a stack with data is
tests/faults/test_restore_drill.py.)"""

import hashlib
import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from deploy.embedded import backup, backup_files
from deploy.embedded.backup import NAMING_BLOBS
from deploy.embedded.faults import CannotStart
from deploy.embedded.home import ROOT, Home
from deploy.embedded.layout import Part
from deploy.embedded.restore import restore
from deploy.embedded.stack import EmbeddedServices
from tests.deploy.conftest import bare_environ
from tests.profiles import one_in

TENANT = str(uuid4())


@pytest.fixture
def variables() -> dict[str, str]:
    return bare_environ()


@pytest.fixture
def filled(home: Home, variables: dict[str, str]) -> Iterator[Home]:
    """A home whose Postgres has the tables that name blobs, two of which are named."""
    with EmbeddedServices(home.path, (Part.POSTGRES,), variables=variables, forgetful=True) as services:
        secrets = services.stack.plan.credentials
        port = services.stack.plan.ports[Part.POSTGRES]
        environ = backup.client_environment(port, secrets.postgres_superuser_password, variables)
        with psycopg.connect(environ["PGURL"], autocommit=True) as connection:
            for table in NAMING_BLOBS:
                connection.execute(f"CREATE TABLE {table} (tenant_id uuid, said jsonb)".encode())
            connection.execute("REVOKE TEMPORARY ON DATABASE kolm FROM PUBLIC")
        for text in (b"one", b"two"):
            keep(home, environ["PGURL"], text)
        yield home


def keep(home: Home, url: str, data: bytes) -> Path:
    """A blob and the row that names it, in the order in which kolm writes them."""
    digest = hashlib.sha256(data).hexdigest()
    path = home.blobs / TENANT / digest[:2] / digest
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO compiles_upload VALUES (%s, %s)", [TENANT, json.dumps({"sha256": digest, "spec": "f" * 64})]
        )
    return path


def url_of(home: Home, variables: dict[str, str]) -> str:
    with backup._connect(home, variables) as (_, environ):
        return environ["PGURL"]


def test_what_was_backed_up_comes_back(filled: Home, variables: dict[str, str], tmp_path: Path) -> None:
    (filled.server / "usage").mkdir(parents=True)
    (filled.server / "usage" / "usage.journal.next").write_text("{}\n")
    (filled.server / "usage" / ".half").write_text("{")
    keys = backup_files.small_files(filled)
    assert set(keys) == {"secrets.json", "signing_key.pem", "server/usage/usage.journal.next"}
    backup.make(filled, variables, tmp_path / "kept")
    other = Home(path=filled.path / "other")
    restore(other, variables, tmp_path / "kept")
    assert backup_files.small_files(other) == keys
    assert {path.read_bytes() for *_, path in backup_files.blob_files(other.blobs)} == {b"one", b"two"}
    with EmbeddedServices(other.path, (Part.POSTGRES,), variables=variables) as services:
        plan = services.stack.plan
        environ = backup.client_environment(
            plan.ports[Part.POSTGRES], plan.credentials.postgres_superuser_password, variables
        )
        with psycopg.connect(environ["PGURL"]) as connection:
            assert connection.execute("SELECT count(*) FROM compiles_upload").fetchone() == (2,)
            may = connection.execute("SELECT has_database_privilege('kolm_app', 'kolm', 'TEMPORARY')").fetchone()
            assert may == (False,)  # granted on the database itself: in no table's dump


def test_a_backup_of_a_stack_that_is_down_starts_its_postgres(
    home: Home, variables: dict[str, str], tmp_path: Path
) -> None:
    with EmbeddedServices(home.path, (Part.POSTGRES,), variables=variables) as services:
        url = backup.client_environment(
            services.stack.plan.ports[Part.POSTGRES],
            services.stack.plan.credentials.postgres_superuser_password,
            variables,
        )["PGURL"]
        with psycopg.connect(url, autocommit=True) as connection:
            for table in NAMING_BLOBS:
                connection.execute(f"CREATE TABLE {table} (tenant_id uuid, said jsonb)".encode())
    assert not home.is_up()
    assert backup.make(home, variables, tmp_path / "kept").files
    assert not home.is_up()


def test_a_deletion_after_the_first_look_takes_nothing_away(
    filled: Home, variables: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep between snapshot and copying: the row is in the dump, and so is its blob."""
    dumped = backup._run_pg_dump

    def sweep_then_dump(*arguments: object) -> None:
        shutil.rmtree(filled.blobs / TENANT)
        dumped(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(backup, "_run_pg_dump", sweep_then_dump)
    manifest = backup.make(filled, variables, tmp_path / "kept")
    assert len(manifest.below("blobs")) == 2


@pytest.mark.nightly
def test_a_blob_that_came_and_went_between_the_looks_means_another_snapshot(
    filled: Home, variables: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, held = url_of(filled, variables), backup.hold
    looks: list[str] = []
    coming: list[Path] = []

    def hold(blobs: Path, links: Path) -> None:
        looks.append("look")
        if len(looks) == 2:  # within the first snapshot: what it sees is swept away before it can be held
            coming[0].unlink()
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute("DELETE FROM compiles_upload WHERE said->>'sha256' = %s", [coming[0].name])
        held(blobs, links)
        if len(looks) == 1:  # written after the first look
            coming.append(keep(filled, url, b"came and went"))

    monkeypatch.setattr(backup, "hold", hold)
    manifest = backup.make(filled, variables, tmp_path / "kept")
    assert len(looks) == 3  # before, in the snapshot that was not good, in the one that was
    assert len(manifest.below("blobs")) == 2


@pytest.mark.nightly
def test_blobs_that_were_gone_long_before_stop_no_backup(
    filled: Home, variables: dict[str, str], tmp_path: Path
) -> None:
    """As a forgotten data set's, whose digest stays on the step's record."""
    keep(filled, url_of(filled, variables), b"forgotten").unlink()
    assert len(backup.make(filled, variables, tmp_path / "kept").below("blobs")) == 2


def test_a_blob_that_is_not_what_its_name_says_is_left_out_and_named(
    filled: Home, variables: dict[str, str], tmp_path: Path
) -> None:
    rotten = keep(filled, url_of(filled, variables), b"sound")
    rotten.write_bytes(b"rotten")
    manifest = backup.make(filled, variables, tmp_path / "kept")
    assert manifest.damaged == (f"{TENANT}/{rotten.name}",)
    assert backup_files.read_manifest(tmp_path / "kept") == manifest


@pytest.mark.nightly
def test_only_one_backup_is_made_at_a_time_and_none_over_another(
    filled: Home, variables: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, go_on = threading.Event(), threading.Event()
    held = backup.hold

    def hold(blobs: Path, links: Path) -> None:
        inside.set()
        assert go_on.wait(timeout=60)
        held(blobs, links)

    monkeypatch.setattr(backup, "hold", hold)
    first = threading.Thread(target=lambda: backup.make(filled, variables, tmp_path / "kept"))
    first.start()
    try:
        assert inside.wait(timeout=60)
        with pytest.raises(CannotStart, match="being made already"):
            backup.make(filled, variables, tmp_path / "second")
    finally:
        go_on.set()
        first.join(timeout=100)
    with pytest.raises(CannotStart, match="never written over"):
        backup.make(filled, variables, tmp_path / "kept")
    with pytest.raises(CannotStart, match="lies in the data"):
        backup.make(filled, variables, filled.path / "blobs" / "kept")


@pytest.mark.nightly
def test_a_failed_backup_leaves_nothing(
    filled: Home, variables: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(backup, "_copy_blobs", full)
    with pytest.raises(CannotStart, match="No space left"):
        backup.make(filled, variables, tmp_path / "kept")
    assert list(tmp_path.iterdir()) == []
    assert not (filled.blobs / backup.LINKS).exists()


def test_a_home_without_data_is_not_backed_up(home: Home, variables: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="nothing to back up"):
        backup.make(home, variables, tmp_path / "kept")


def cut(folder: Path) -> None:
    path = next(path for *_, path in backup_files.blob_files(folder / "blobs"))
    path.write_bytes(path.read_bytes()[:-1])


def altered(folder: Path) -> None:
    path = next(path for *_, path in backup_files.blob_files(folder / "blobs"))
    path.write_bytes(b"x" * path.stat().st_size)


def without(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def also_naming(name: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        manifest = json.loads((folder / "manifest.json").read_text())
        manifest["files"][name] = manifest["files"]["home/secrets.json"]
        (folder / "manifest.json").write_text(json.dumps(manifest))

    return spoil


def torn(folder: Path) -> None:
    path = folder / "database.dump"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("spoil", "said"),
    one_in(
        4,
        [
            (cut, "not whole"),
            (altered, "damaged"),
            (torn, "damaged"),
            (without("manifest.json"), "no manifest.json"),
            (without("home/secrets.json"), "not whole"),
            (without("database.dump"), "not whole"),
            (also_naming("home/../../stolen"), "no backup has"),
            (also_naming("home//tmp/stolen"), "no backup has"),
            (also_naming("/tmp/stolen"), "no backup has"),
            (also_naming("home/pg/postgresql.conf"), "no backup has"),
            (also_naming("blobs/x/../../secrets.json"), "no backup has"),
        ],
    ),
    ids=["cut", "altered", "torn", "no-manifest", "no-secrets", "no-dump", "up", "root", "absolute", "pg", "sideways"],
)
def test_a_spoilt_backup_is_not_restored_and_leaves_no_half_home(
    spoil: Callable[[Path], None], said: str, filled: Home, variables: dict[str, str], tmp_path: Path
) -> None:
    backup.make(filled, variables, tmp_path / "kept")
    spoil(tmp_path / "kept")
    target = Home(path=filled.path / "other")
    with pytest.raises(CannotStart, match=said):
        restore(target, variables, tmp_path / "kept")
    assert not target.path.exists()
    assert not target.path.with_name("other.restoring").exists()


@pytest.mark.nightly
def test_nothing_is_restored_over_data(filled: Home, variables: dict[str, str], tmp_path: Path) -> None:
    backup.make(filled, variables, tmp_path / "kept")
    with pytest.raises(CannotStart, match="A stack is up"):
        restore(filled, variables, tmp_path / "kept")
    for name in ("secrets.json", "signing_key.0123456789abcdef.pem", "blobs/of-somebody"):
        target = Home(path=tmp_path / f"home-{name[:4]}{len(name)}")
        path = target.path / name
        path.parent.mkdir(parents=True)
        path.write_text("mine")
        with pytest.raises(CannotStart, match="holds data"):
            restore(target, variables, tmp_path / "kept")
        assert path.read_text() == "mine"


@pytest.mark.nightly
def test_other_files_of_a_person_stay_in_a_home_that_is_restored_into(
    filled: Home, variables: dict[str, str], tmp_path: Path
) -> None:
    backup.make(filled, variables, tmp_path / "kept")
    target = Home(path=filled.path / "other")
    (target.path / "mail").mkdir(parents=True)
    (target.path / "mail" / "letter").write_text("mine")
    (target.path / "blobs").mkdir()
    restore(target, variables, tmp_path / "kept")
    assert (target.path / "mail" / "letter").read_text() == "mine"
    assert (target.pgdata / "PG_VERSION").exists()


def killed_once_there(command: list[str], sign: Path, variables: dict[str, str]) -> None:
    """Start it and kill it with -9 as soon as `sign` is there."""
    process = subprocess.Popen([sys.executable, "-m", *command], cwd=ROOT, env=variables)
    deadline = time.monotonic() + 60
    while not sign.exists():
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.kill()
    process.wait()


@pytest.mark.nightly
@pytest.mark.parametrize("sign", ["blobs", "pg/PG_VERSION"])
def test_a_restore_that_is_killed_leaves_an_empty_home_and_the_next_one_works(
    sign: str, filled: Home, variables: dict[str, str], tmp_path: Path
) -> None:
    backup.make(filled, variables, tmp_path / "kept")
    target = Home(path=filled.path / "other")
    command = ["deploy.embedded.restore", "--from", str(tmp_path / "kept")]
    killed_once_there(command, filled.path / "other.restoring" / sign, variables | {"KOLM_HOME": str(target.path)})
    assert not target.path.exists()
    restore(target, variables, tmp_path / "kept")
    assert (target.pgdata / "PG_VERSION").exists()
    assert not (filled.path / "other.restoring").exists()


@pytest.mark.nightly
@pytest.mark.parametrize("sign", ["", "database.dump"])
def test_a_backup_that_is_killed_is_none_and_the_next_one_works(
    sign: str, filled: Home, variables: dict[str, str], tmp_path: Path
) -> None:
    to = tmp_path / "kept"
    command = ["deploy.embedded.backup", "--to", str(to)]
    killed_once_there(command, tmp_path / "kept.unfinished" / sign, variables | {"KOLM_HOME": str(filled.path)})
    assert not to.exists()
    with pytest.raises(CannotStart, match="no complete backup"):
        restore(Home(path=filled.path / "other"), variables, tmp_path / "kept.unfinished")
    assert len(backup.make(filled, variables, to).below("blobs")) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert not (filled.blobs / backup.LINKS).exists()
