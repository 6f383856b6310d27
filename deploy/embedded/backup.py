"""`python -m deploy.embedded.backup [--to FOLDER]`: the embedded stack's data at one moment, while it goes on working.

The database is looked at through one snapshot, and every blob that a row of that snapshot names must be in the backup,
although retention sweeps and erasures delete blobs all the time. So the blobs are held first: a second name (hard
link) for each, which a deletion does not take away. Then the snapshot is taken and what was written meanwhile is held,
too. A blob that was written after the first look and deleted before the second would be missing: if a row of the
snapshot names one and no row does any more, another snapshot is taken. Then the dump, then the copying of bytes.

pg_dump connects as the superuser of the embedded Postgres: kolm_owner cannot dump, row-level security being forced on
the owner, too.
"""

import argparse
import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

import psycopg

from deploy.embedded import backup_files as files
from deploy.embedded import credentials, layout, postgres
from deploy.embedded.faults import CannotStart
from deploy.embedded.home import ROOT, Home
from deploy.embedded.layout import Part
from deploy.embedded.ports import HOST
from deploy.embedded.stack import EmbeddedServices

LINKS = ".backup"  # within the blob folder: hard links do not reach across file systems
SNAPSHOTS = 20
LOCK_WAIT_S = 5.0  # a backup that was just killed is not quite gone yet: what it was starting holds the lock, too
# Tables whose rows name blobs, in columns or within JSON. What looks like a digest and is none does no harm:
# `_is_blob_lost` looks for what is gone since.
NAMING_BLOBS = (
    "artifacts_artifact",
    "compiles_upload",
    "compiles_steprun",
    "runner_jobs_runnerjob",
    "selections_selection",
)
_REFERENCES = " UNION ".join(
    f"SELECT tenant_id::text, (regexp_matches(t::text, '\\m[0-9a-f]{{64}}\\M', 'g'))[1] FROM {table} t"
    for table in NAMING_BLOBS
)
Connection = psycopg.Connection[tuple[object, ...]]
Reference = tuple[str, str]  # tenant, digest


def make(home: Home, variables: Mapping[str, str], to: Path) -> files.Manifest:
    """A backup at `to`, which is not there yet. Raises CannotStart."""
    if to.exists():
        raise CannotStart(f"{to} is there already: a backup is never written over another one.")
    if to.absolute().is_relative_to(home.path):
        raise CannotStart(f"{to} lies in the data that it is a backup of; choose another folder.")
    unfinished = to.with_name(f"{to.name}.unfinished")
    with _alone(home), _connect(home, variables) as (connection, environ):
        try:
            shutil.rmtree(unfinished, ignore_errors=True)
            files.private_folder(unfinished)
            manifest = _write(home, connection, environ, unfinished)
        except OSError as fault:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise CannotStart(f"The backup could not be written: {fault}") from None
    unfinished.rename(to)
    return manifest


def _write(home: Home, connection: Connection, environ: Mapping[str, str], to: Path) -> files.Manifest:
    small = files.small_files(home)
    links = home.blobs / LINKS
    shutil.rmtree(links, ignore_errors=True)  # of a backup that was killed
    try:
        hold(home.blobs, links)
        snapshot_at = _dump(connection, environ, home.blobs, links, to / files.DUMP)
        kept = {files.DUMP: files.digest_of(to / files.DUMP)}
        copied, damaged = _copy_blobs(links, to / files.BLOBS)
    finally:
        shutil.rmtree(links, ignore_errors=True)
    now = files.small_files(home)
    if any(small[name] != now.get(name) for name in small if not name.startswith("server/")):
        raise CannotStart("A key was changed while the backup was made; make it again.")
    kept |= copied | {
        f"{files.HOME}/{name}": files.write_private(data, to / files.HOME / name) for name, data in small.items()
    }
    manifest = files.Manifest(
        snapshot_at=files.utc_text(snapshot_at), postgres=postgres.VERSION, damaged=damaged, files=kept
    )
    files.write_manifest(to, manifest)
    return manifest


def hold(blobs: Path, links: Path) -> None:
    """A second name below `links` for every blob that has none there yet."""
    links.mkdir(mode=0o700, exist_ok=True)
    for tenant, digest, path in files.blob_files(blobs):
        held = links / tenant / digest[:2] / digest
        if held.exists():
            continue
        files.private_folder(held.parent)
        with contextlib.suppress(FileNotFoundError):  # deleted since it was listed
            try:
                held.hardlink_to(path)
            except PermissionError:  # a file system without links
                shutil.copyfile(path, held)


def _dump(connection: Connection, environ: Mapping[str, str], blobs: Path, links: Path, to: Path) -> datetime:
    """pg_dump of one snapshot whose blobs are all held; when that was. Raises CannotStart."""
    for _ in range(SNAPSHOTS):
        with connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            row = connection.execute("SELECT pg_export_snapshot(), now()").fetchone()
            assert row is not None
            hold(blobs, links)
            if not _is_blob_lost(connection, environ["PGURL"], links):
                _run_pg_dump(environ, str(row[0]), to)
                assert isinstance(row[1], datetime)
                return row[1].astimezone(UTC)
    raise CannotStart(f"Blobs were deleted under {SNAPSHOTS} snapshots in a row; try again when less is being deleted.")


def _is_blob_lost(connection: Connection, url: str, links: Path) -> bool:
    """Return whether a blob that the snapshot names was deleted before it was held. What is named then and now and is
    not there was gone before, as a forgotten data set's blob is whose digest stays on record."""
    absent = {
        (tenant, digest)
        for tenant, digest in _references(connection)
        if not (links / tenant / digest[:2] / digest).exists()
    }
    if not absent:
        return False
    with psycopg.connect(url, autocommit=True) as now:
        return not absent <= _references(now)


def _references(connection: Connection) -> set[Reference]:
    return {(str(tenant), str(digest)) for tenant, digest in connection.execute(_REFERENCES).fetchall()}


def _run_pg_dump(environ: Mapping[str, str], snapshot: str, to: Path) -> None:
    command = [postgres.program("pg_dump"), "--format=custom", f"--snapshot={snapshot}", "--no-password"]
    to.unlink(missing_ok=True)
    with open(os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        done = subprocess.run(command, env=dict(environ), stdout=out, stderr=subprocess.PIPE, text=True)
        os.fsync(out.fileno())
    if done.returncode != 0:
        raise CannotStart(f"pg_dump failed: {(done.stderr.strip().splitlines() or ['nothing said'])[-1]}")


def _copy_blobs(links: Path, to: Path) -> tuple[dict[str, files.Kept], tuple[str, ...]]:
    """The held blobs' bytes, checked against their names; and those that are not what their name says."""
    kept: dict[str, files.Kept] = {}
    damaged = []
    for tenant, digest, path in files.blob_files(links):
        name = f"{tenant}/{digest[:2]}/{digest}"
        copy = files.copy_private(path, to / name)
        if copy.sha256 == digest:
            kept[f"{files.BLOBS}/{name}"] = copy
        else:
            (to / name).unlink()
            damaged.append(f"{tenant}/{digest}")
    return kept, tuple(damaged)


def _lock(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def _alone(home: Home) -> Iterator[None]:
    """One backup of a home at a time."""
    if not (home.pgdata / "PG_VERSION").exists():
        raise CannotStart(f"There is nothing to back up in {home.path}: no database of ours is there.")
    (home.path / "run").mkdir(mode=0o700, exist_ok=True)
    with (home.path / "run" / "backup.lock").open("w") as lock:
        deadline = time.monotonic() + LOCK_WAIT_S
        while not _lock(lock):
            if time.monotonic() > deadline:
                raise CannotStart(f"A backup of {home.path} is being made already.")
            time.sleep(0.05)
        yield


@contextlib.contextmanager
def _connect(home: Home, variables: Mapping[str, str]) -> Iterator[tuple[Connection, dict[str, str]]]:
    """A superuser's connection to the home's Postgres, which is started for it where the stack is down; and the
    environment of its command-line programs."""
    secrets = credentials.load_or_create(home)
    with contextlib.ExitStack() as stack:
        if home.is_up():
            port = int(home.read_state().get("ports", {}).get(Part.POSTGRES, 0))
        else:
            bare = {name: value for name, value in variables.items() if name != "DATABASE_URL"}
            services = EmbeddedServices(home.path, (Part.POSTGRES,), variables=bare, forgetful=False)
            port = stack.enter_context(services).stack.plan.ports[Part.POSTGRES]
        if not port:
            raise CannotStart("This stack's Postgres is another server: docs/backups.md says how that is dumped.")
        environ = client_environment(port, secrets.postgres_superuser_password, variables)
        try:
            connection = stack.enter_context(psycopg.connect(environ["PGURL"]))
        except psycopg.OperationalError as fault:
            raise CannotStart(f"The stack's Postgres does not answer: {str(fault).strip()}") from None
        yield connection, environ


def client_environment(port: int, password: str, variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of pg_dump and pg_restore: whom to ask, as the superuser. The password is in no command
    line."""
    shared = {name: variables[name] for name in ("PATH", "LANG", "LC_ALL", "TMPDIR") if name in variables}
    return shared | {
        "PGHOST": HOST,
        "PGPORT": str(port),
        "PGUSER": "postgres",
        "PGPASSWORD": password,
        "PGDATABASE": postgres.DATABASE,
        "PGURL": postgres.url(port, "postgres", password),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.embedded.backup", description="Back up $KOLM_HOME.")
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    parser.add_argument("--to", type=Path, default=ROOT / "backups" / f"kolm-{stamp}", metavar="FOLDER")
    chosen = parser.parse_args(arguments)
    variables = layout.environ()
    home = Home.from_environ(variables)
    try:
        manifest = make(home, variables, chosen.to)
    except CannotStart as fault:
        print(fault, file=sys.stderr)
        return 1
    n_blobs = len(manifest.below(files.BLOBS))
    print(f"{chosen.to}: the data of {manifest.snapshot_at}, {n_blobs} blobs, {manifest.n_bytes / 1e6:.1f} MB in all.")
    print("It holds every key of this installation: keep it as secret as the installation, and not on this disk alone.")
    for name in manifest.damaged:
        print(f"Not in it, because its bytes on disk are not those of its name: blob {name}", file=sys.stderr)
    return 1 if manifest.damaged else 0


if __name__ == "__main__":
    sys.exit(main())
