"""`python -m deploy.embedded.restore --from FOLDER`: a backup becomes the data of $KOLM_HOME, which holds none.

Everything is put together beside the home and moved into place at the end: a restore that is killed leaves a home that
is as empty as before. Every byte is compared with the backup's manifest on the way.
"""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import psycopg

from deploy.embedded import backup_files as files
from deploy.embedded import credentials, layout, postgres
from deploy.embedded.backup import client_environment
from deploy.embedded.faults import CannotStart
from deploy.embedded.home import OURS, Home
from deploy.embedded.layout import Part
from deploy.embedded.stack import EmbeddedServices, end_leftovers


def restore(home: Home, variables: Mapping[str, str], source: Path) -> files.Manifest:
    """Raises CannotStart; the home is then as it was."""
    manifest = files.read_manifest(source)
    if manifest.postgres != postgres.VERSION:
        raise CannotStart(f"The backup is of Postgres {manifest.postgres} and this kolm runs {postgres.VERSION}.")
    _check_empty(home)
    new = Home(path=home.path.with_name(f"{home.path.name}.restoring"))
    if new.is_up():
        raise CannotStart(f"A restore into {home.path} is under way already.")
    if new.path.exists():  # of a restore that was killed
        end_leftovers(new)
        shutil.rmtree(new.path)
    try:
        new.create()
        _copy_files(manifest, source, new)
        _restore_database(new, variables, source / files.DUMP)
        _move(new.path, home.path)
    except OSError as fault:
        raise CannotStart(f"The backup could not be restored: {fault}") from None
    finally:
        shutil.rmtree(new.path, ignore_errors=True)
    return manifest


def _check_empty(home: Home) -> None:
    if home.is_up():
        raise CannotStart(f"A stack is up on {home.path}: `make down` ends it.")
    empty_ones = {"run", "logs"}  # what `up` makes before it holds anything
    held = [home.path / name for name in OURS if name not in empty_ones] + [*home.path.glob("signing_key*.pem")]
    there = [path for path in held if path.exists() and not (path.is_dir() and not any(path.iterdir()))]
    if there:
        raise CannotStart(
            f"{home.path} holds data ({there[0].name}), and nothing is restored over it: back it up, then "
            "`python -m deploy.embedded wipe --yes`, or name another home with KOLM_HOME."
        )


def _copy_files(manifest: files.Manifest, source: Path, new: Home) -> None:
    """Blobs, secrets and keys, each with the digest that the manifest has."""
    for name, kept in manifest.files.items():
        if name == files.DUMP:
            copy = files.digest_of(source / name)
        else:
            top, _, rest = name.partition("/")
            copy = files.copy_private(source / name, (new.blobs if top == files.BLOBS else new.path) / rest)
        if copy != kept:
            raise CannotStart(f"The backup is damaged: {source / name} is not what it was.")


def _restore_database(new: Home, variables: Mapping[str, str], dump: Path) -> None:
    """Restore into a Postgres that is made for it. The database itself comes from the dump: what was granted on it, or
    taken from PUBLIC, is nowhere else."""
    bare = {name: value for name, value in variables.items() if name != "DATABASE_URL"}
    password = credentials.load_or_create(new).postgres_superuser_password
    with EmbeddedServices(new.path, (Part.POSTGRES,), variables=bare, forgetful=False) as services:
        environ = client_environment(services.stack.plan.ports[Part.POSTGRES], password, variables)
        maintenance = environ | {"PGDATABASE": "postgres"}
        with psycopg.connect(environ["PGURL"], dbname="postgres", autocommit=True) as connection:
            connection.execute("DROP DATABASE kolm")  # the empty one that every new Postgres of ours has
        command = [postgres.program("pg_restore"), "--create", "--exit-on-error", "--no-password", "--dbname=postgres"]
        done = subprocess.run([*command, str(dump)], env=maintenance, capture_output=True, text=True)
        if done.returncode != 0:
            raise CannotStart(f"pg_restore failed: {(done.stderr.strip().splitlines() or ['nothing said'])[0]}")
        with psycopg.connect(environ["PGURL"], autocommit=True) as connection:
            connection.execute("ANALYZE")  # or the first requests are planned as for empty tables


def _move(new: Path, to: Path) -> None:
    """Move into a home that is not there, in one step; into one where a person keeps other files, part by part."""
    for name in ("run", "logs"):
        shutil.rmtree(to / name, ignore_errors=True)
    if (to / "blobs").is_dir():
        (to / "blobs").rmdir()
    if to.exists() and any(to.iterdir()):
        to.chmod(new.stat().st_mode & 0o777)
        for part in sorted(new.iterdir(), key=lambda path: path.name == "pg"):  # the database last
            part.rename(to / part.name)
        new.rmdir()
    else:
        new.rename(to)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.embedded.restore", description="Restore into $KOLM_HOME.")
    parser.add_argument("--from", type=Path, required=True, dest="source", metavar="FOLDER")
    chosen = parser.parse_args(arguments)
    variables = layout.environ()
    home = Home.from_environ(variables)
    try:
        manifest = restore(home, variables, chosen.source)
    except CannotStart as fault:
        print(fault, file=sys.stderr)
        return 1
    print(f"{home.path} holds the data of {manifest.snapshot_at}: `make up`, then `make ledger-check`.")
    print("What was erased after that moment is back: erase it again (docs/backups.md).")
    return 0


if __name__ == "__main__":
    sys.exit(main())
