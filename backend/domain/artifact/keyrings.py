"""Keyring documents: the public keys that somebody trusts, read strictly and merged without losing a revocation."""

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

WELL_KNOWN = "/.well-known/kolm-keys.json"
FIELDS = frozenset({"keyid", "public_key", "name", "not_before", "not_after", "revoked_at"})


class BadKeyring(Exception):
    """The error of a document that is no keyring; the message says why."""


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


def merge_keyrings(known: Iterable[Mapping[str, Any]], fresh: Iterable[Mapping[str, Any]]) -> str:
    """The text of a keyring with both, the fresh entry where both have a key. A revocation that is known is never taken
    back."""
    before = {entry["keyid"]: entry for entry in known}
    after = {entry["keyid"]: _keep_revocation(before.get(entry["keyid"]), entry) for entry in fresh}
    keys = sorted((before | after).values(), key=lambda entry: str(entry["keyid"]))
    return json.dumps({"keys": keys}, indent=2, ensure_ascii=False) + "\n"


def _keep_revocation(known: Mapping[str, Any] | None, entry: Mapping[str, Any]) -> Mapping[str, Any]:
    if known is not None and known["revoked_at"] is not None and entry["revoked_at"] is None:
        return {**entry, "revoked_at": known["revoked_at"]}
    return entry


def _raw(entry: Mapping[str, Any]) -> bytes:
    try:
        raw = base64.b64decode(entry["public_key"], validate=True)
    except (TypeError, ValueError) as error:
        raise BadKeyring("A public key is not base64.") from error
    if len(raw) != 32:
        raise BadKeyring("A public key is not 32 bytes of Ed25519.")
    return raw
