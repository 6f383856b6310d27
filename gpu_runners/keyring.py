"""The pinned keyring on the reader's side: which signing keys `kolm verify` trusts. Pinning is the one moment of trust,
so the fingerprints are shown and compared out of band; afterwards nothing is asked of any network."""

import base64
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

WELL_KNOWN = "/.well-known/kolm-keys.json"
FIELDS = frozenset({"keyid", "public_key", "name", "not_before", "not_after", "revoked_at"})


class BadKeyring(Exception):
    """What was read is not a keyring; the message says why."""


def parse_keys(data: bytes) -> list[dict[str, Any]]:
    """The entries of a keyring document, each with a key that has its id. Raises BadKeyring."""
    try:
        value = json.loads(data)
    except ValueError as error:
        raise BadKeyring(f"It is not JSON ({error}).") from error
    entries = value.get("keys") if isinstance(value, dict) else None
    if not isinstance(entries, list) or not entries:
        raise BadKeyring('It is not an object with a list "keys".')
    for entry in entries:
        if not isinstance(entry, dict) or set(entry) != FIELDS:
            raise BadKeyring(f"A key has the fields {', '.join(sorted(FIELDS))}, nothing else.")
        if hashlib.sha256(_raw(entry)).hexdigest() != entry["keyid"]:
            raise BadKeyring(f"The key {str(entry['keyid'])[:16]}… does not have the fingerprint it claims.")
    return entries


def pin(path: Path, entries: list[dict[str, Any]]) -> tuple[int, int]:
    """Add or replace entries in the keyring at `path`, atomically, mode 0600; (added, replaced). A pinned revocation is
    never taken back. Raises BadKeyring when what stands there is not a keyring."""
    known = {entry["keyid"]: entry for entry in parse_keys(path.read_bytes())} if path.exists() else {}
    fresh = {entry["keyid"]: _keep_revocation(known.get(entry["keyid"]), entry) for entry in entries}
    replaced = len(known.keys() & fresh.keys())
    merged = {"keys": sorted((known | fresh).values(), key=lambda entry: str(entry["keyid"]))}
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".keyring-")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(json.dumps(merged, indent=2, ensure_ascii=False) + "\n")
    os.replace(temporary, path)
    return len(fresh) - replaced, replaced


def fingerprint(keyid: str) -> str:
    """`3f2a 9c01 ...`: groups of four are what people can compare aloud."""
    return " ".join(keyid[i : i + 4] for i in range(0, len(keyid), 4))


def _keep_revocation(known: Mapping[str, Any] | None, entry: dict[str, Any]) -> dict[str, Any]:
    if known is not None and known["revoked_at"] is not None and entry["revoked_at"] is None:
        return entry | {"revoked_at": known["revoked_at"]}
    return entry


def _raw(entry: Mapping[str, Any]) -> bytes:
    try:
        raw = base64.b64decode(entry["public_key"], validate=True)
    except (TypeError, ValueError) as error:
        raise BadKeyring("A public key is not base64.") from error
    if len(raw) != 32:
        raise BadKeyring("A public key is not 32 bytes of Ed25519.")
    return raw
