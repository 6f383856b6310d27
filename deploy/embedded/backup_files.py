"""The form of a backup on disk: a folder of private files and one manifest that has the SHA-256 of each.

    manifest.json            what follows, and when the database was looked at
    database.dump            pg_dump's custom format: every table, with row-level security and grants
    blobs/TENANT/aa/DIGEST   the blob store
    home/...                 secrets.json, signing keys, the pinned keyring, usage that the server had not told yet

It is written under another name and renamed when it is complete: what is called a backup is a whole one.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from deploy.embedded.faults import CannotStart
from deploy.embedded.home import Home, replace_private

FORMAT = "kolm-backup-1"
DUMP, BLOBS, HOME = "database.dump", "blobs", "home"
# a manifest names these and nothing else: no file of a backup can be put anywhere but where it came from
_NAME = re.compile(
    r"database\.dump|blobs/[0-9a-f-]{36}/[0-9a-f]{2}/[0-9a-f]{64}"
    r"|home/(?:(?:secrets|keyring|demo)\.json|signing_key[\w.-]*\.pem|server/usage/[\w-][\w.-]*)"
)
_DIGEST = re.compile(r"[0-9a-f]{64}")
_PART_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A file of a backup: its digest and its size."""

    sha256: str
    n_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """`snapshot_at` is the moment that a restore goes back to (UTC); `damaged` are blobs whose bytes on disk were not
    those of their name, which are therefore not in the backup."""

    snapshot_at: str
    postgres: str
    damaged: tuple[str, ...]
    files: Mapping[str, Kept]

    @property
    def n_bytes(self) -> int:
        return sum(kept.n_bytes for kept in self.files.values())

    def below(self, folder: str) -> list[str]:
        return [name for name in self.files if name.startswith(f"{folder}/")]


def utc_text(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def write_manifest(folder: Path, manifest: Manifest) -> None:
    files = {name: {"sha256": kept.sha256, "bytes": kept.n_bytes} for name, kept in sorted(manifest.files.items())}
    value = {
        "format": FORMAT,
        "snapshot_at": manifest.snapshot_at,
        "postgres": manifest.postgres,
        "damaged": list(manifest.damaged),
        "files": files,
    }
    replace_private(folder / "manifest.json", json.dumps(value, indent=1) + "\n")


def read_manifest(folder: Path) -> Manifest:
    """Raises CannotStart for what is no backup, is none of ours, or lacks a file or a byte of one. Digests are compared
    by whoever reads the files."""
    try:
        value = json.loads((folder / "manifest.json").read_text())
    except FileNotFoundError:
        raise CannotStart(f"{folder} is no complete backup: it has no manifest.json.") from None
    except ValueError:
        raise CannotStart(f"{folder / 'manifest.json'} is damaged.") from None
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise CannotStart(f"{folder} is no backup that this kolm can read ({FORMAT}).")
    files = {
        name: Kept(sha256=str(kept["sha256"]), n_bytes=int(kept["bytes"])) for name, kept in value["files"].items()
    }
    needed = {DUMP, f"{HOME}/secrets.json", f"{HOME}/signing_key.pem"}
    if not needed <= files.keys():
        raise CannotStart(f"The backup is not whole: it lacks {min(needed - files.keys())}.")
    for name, kept in files.items():
        path = folder / name
        if not _NAME.fullmatch(name):
            raise CannotStart(f"The backup's manifest names a file that no backup has: {name!r}.")
        if not path.is_file() or path.stat().st_size != kept.n_bytes:
            raise CannotStart(f"The backup is not whole: {path} is missing or has another size than it had.")
    return Manifest(
        snapshot_at=str(value["snapshot_at"]),
        postgres=str(value["postgres"]),
        damaged=tuple(value["damaged"]),
        files=files,
    )


def private_folder(path: Path) -> None:
    """The folder, and those above it that were not there, for this user alone (`mkdir(parents=True)` gives its mode to
    the last of them)."""
    if not path.is_dir():
        private_folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


def copy_private(source: Path, target: Path) -> Kept:
    """Copy a file's bytes into a new 0600 file, forced to disk."""
    private_folder(target.parent)
    digest, n_bytes = hashlib.sha256(), 0
    with source.open("rb") as file, open(_new_private(target), "wb") as out:
        while part := file.read(_PART_BYTES):
            digest.update(part)
            out.write(part)
            n_bytes += len(part)
        out.flush()
        os.fsync(out.fileno())
    return Kept(sha256=digest.hexdigest(), n_bytes=n_bytes)


def write_private(data: bytes, target: Path) -> Kept:
    private_folder(target.parent)
    with open(_new_private(target), "wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    return Kept(sha256=hashlib.sha256(data).hexdigest(), n_bytes=len(data))


def digest_of(path: Path) -> Kept:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(_PART_BYTES):
            digest.update(part)
    return Kept(sha256=digest.hexdigest(), n_bytes=path.stat().st_size)


def _new_private(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)


def blob_files(folder: Path) -> Iterator[tuple[str, str, Path]]:
    """(tenant, digest, path) of every finished blob below a blob folder; what disappears meanwhile is left out."""
    for tenant in _names(folder):
        if tenant.startswith("."):
            continue
        for pair in _names(folder / tenant):
            if len(pair) == 2:
                for digest in _names(folder / tenant / pair):
                    if _DIGEST.fullmatch(digest):
                        yield tenant, digest, folder / tenant / pair / digest


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def small_files(home: Home) -> dict[str, bytes]:
    """The home's secrets and keys, and the server's journal of usage, by their name below the home."""
    names = ("secrets.json", "keyring.json", "demo.json")
    paths = [home.path / name for name in names]
    paths += [*home.path.glob("signing_key*.pem"), *(home.server / "usage").glob("*")]
    files = {}
    for path in paths:
        name = str(path.relative_to(home.path))
        if not _NAME.fullmatch(f"{HOME}/{name}"):  # half-written, or a person's
            continue
        try:
            files[name] = path.read_bytes()
        except (FileNotFoundError, IsADirectoryError):
            continue
    return files
