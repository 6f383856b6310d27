"""Epochs of the registry: what at least k tenants have in common, signed, with a Merkle root over the entries.

An epoch is a file: `entries` (shape and run, in the order of their bytes) and `head`, a DSSE envelope over what the
deployment says of them: number, time, k, the root, and the digest of the head before it. Nothing says who contributed,
how many did, or how often. docs/registry.md describes it; every reader here refuses a file that breaks a rule of it.
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from backend.domain.artifact.kolm_verify import (
    Altered,
    Kolm,
    Members,
    canonical,
    distrust,
    open_envelope,
    parse_canonical,
    unbase64,
)
from backend.domain.artifact.receipts import keyid, public_raw, sign_envelope
from backend.domain.canonical import canonical_json
from backend.domain.errors import OurError
from backend.domain.recipes.registry.merkle import leaf_hash, merkle_path, merkle_root, root_of_path
from backend.domain.recipes.registry.structural import structural

FORMAT = "kolm-epoch/1"
PROOF_FORMAT = "kolm-epoch-proof/1"
HEAD_TYPE = "application/vnd.kolm.epoch+json"
MAX_EPOCH_BYTES = 1 << 20
MAX_ENTRIES = 4_096
LEAST_K = 5  # below it a registry would tell of so few that they know one another
_HEAD = {"created_at", "epoch", "format", "k", "keys", "merkle_root", "n_entries", "prev", "shape_version"}
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_VERSION = re.compile(r"[a-z0-9-]{1,32}")
_HEX64 = re.compile(r"[0-9a-f]{64}")


class InvalidEpoch(OurError):
    """The refusal of an epoch that is none, or altered. The message says what is wrong."""

    code = "invalid_epoch"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Entry:
    """An entry: after a text of shape `shape` comes `run`."""

    shape: str
    run: str

    @property
    def leaf(self) -> bytes:
        """The place in the tree: the leaf hash of its canonical JSON."""
        return leaf_hash(canonical_json({"run": self.run, "shape": self.shape}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """`head` is what was signed. `head_sha256` is what the next epoch names as `prev`."""

    number: int
    k: int
    shape_version: str
    created_at: str
    entries: tuple[Entry, ...]
    head: dict[str, Any]
    head_sha256: str
    signers: tuple[str, ...]

    @property
    def merkle_root(self) -> str:
        return str(self.head["merkle_root"])

    def doubts(self, keyring: Mapping[str, Any] | None) -> tuple[str, ...]:
        """Return why its signers are not trusted by a keyring; () where they are."""
        return _doubts(self.head, self.signers, keyring)


def build_epoch(
    entries: Iterable[Entry],
    *,
    number: int,
    prev: str,
    k: int,
    shape_version: str,
    created_at: str,
    key: Ed25519PrivateKey,
) -> bytes:
    """The file. `entries` are what counting let through, in any order. Raises ValueError for what no reader would
    take."""
    ordered = _in_order(entries)
    raw = public_raw(key)
    head = {
        "created_at": created_at,
        "epoch": number,
        "format": FORMAT,
        "k": k,
        "keys": [{"keyid": keyid(raw), "public_key": base64.b64encode(raw).decode()}],
        "merkle_root": merkle_root([entry.leaf for entry in ordered]).hex(),
        "n_entries": len(ordered),
        "prev": prev,
        "shape_version": shape_version,
    }
    envelope = sign_envelope(canonical_json(head), key, payload_type=HEAD_TYPE)
    rows = [{"run": entry.run, "shape": entry.shape} for entry in ordered]
    data = canonical_json({"entries": rows, "format": FORMAT, "head": envelope})
    try:
        read_epoch(data)
    except InvalidEpoch as fault:
        raise ValueError(f"these entries make no epoch: {fault.message}") from fault
    return data


def read_epoch(data: bytes) -> Epoch:
    """An intact epoch: whole, signed by the key that its head names, every entry structural. Whose key it is, is
    another question (`Epoch.doubts`). Raises InvalidEpoch."""
    if len(data) > MAX_EPOCH_BYTES:
        raise InvalidEpoch(f"An epoch has at most {MAX_EPOCH_BYTES} bytes, this file has {len(data)}.")
    document = _document(data, {"entries", "format", "head"}, FORMAT)
    head, signers = _opened_head(document["head"])
    entries = _entries(document["entries"])
    if len(entries) != head["n_entries"]:
        raise InvalidEpoch(f"The head tells of {head['n_entries']} entries, the file has {len(entries)}.")
    if merkle_root([entry.leaf for entry in entries]).hex() != head["merkle_root"]:
        raise InvalidEpoch("The entries are not those that were signed: their Merkle root is another.")
    return Epoch(
        number=head["epoch"],
        k=head["k"],
        shape_version=head["shape_version"],
        created_at=head["created_at"],
        entries=entries,
        head=head,
        head_sha256=_head_sha256(head),
        signers=signers,
    )


def prove(data: bytes, index: int) -> dict[str, Any]:
    """A document that shows entry `index` to be in the epoch, without the other entries. Raises InvalidEpoch, and
    IndexError for a place that is not there."""
    epoch = read_epoch(data)
    path = merkle_path([entry.leaf for entry in epoch.entries], index)
    entry = epoch.entries[index]
    return {
        "entry": {"run": entry.run, "shape": entry.shape},
        "format": PROOF_FORMAT,
        "head": parse_canonical(data, "the epoch")["head"],
        "index": index,
        "path": [step.hex() for step in path],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """An entry that is in the epoch of `head`."""

    entry: Entry
    head: dict[str, Any]
    signers: tuple[str, ...]

    def doubts(self, keyring: Mapping[str, Any] | None) -> tuple[str, ...]:
        return _doubts(self.head, self.signers, keyring)


def read_proof(data: bytes) -> Proof:
    """Raises InvalidEpoch where the document does not prove what it says."""
    if len(data) > MAX_EPOCH_BYTES:
        raise InvalidEpoch("A proof is not as large as that.")
    document = _document(data, {"entry", "format", "head", "index", "path"}, PROOF_FORMAT)
    head, signers = _opened_head(document["head"])
    entry = _entries([document["entry"]])[0]
    steps, index = document["path"], document["index"]
    if type(index) is not int or not isinstance(steps, list) or not all(_is_hex64(step) for step in steps):
        raise InvalidEpoch("A proof has an index and a path of digests.")
    root = root_of_path(entry.leaf, index, head["n_entries"], [bytes.fromhex(step) for step in steps])
    if root is None or root.hex() != head["merkle_root"]:
        raise InvalidEpoch("The proof does not lead to the root that was signed.")
    return Proof(entry=entry, head=head, signers=signers)


def _in_order(entries: Iterable[Entry]) -> list[Entry]:
    return sorted(set(entries))


def _document(data: bytes, fields: set[str], format: str) -> dict[str, Any]:
    try:
        document = parse_canonical(data, "the file")
    except Altered as fault:
        raise InvalidEpoch(f"This is not an epoch of the registry: {fault}.") from None
    if set(document) != fields or document["format"] != format:
        raise InvalidEpoch(f"This is not a document of the format {format}.")
    return document


def _opened_head(envelope: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    try:
        if not isinstance(envelope, dict):
            raise Altered("the head is not an envelope")
        payload = unbase64(envelope.get("payload"), "the head's payload")
        head = parse_canonical(payload, "the head")
        _check_head(head)
        _, signers = open_envelope(canonical(envelope), HEAD_TYPE, _keys(head["keys"]), "the head")
    except (Altered, UnicodeEncodeError) as fault:
        raise InvalidEpoch(f"The epoch was altered: {fault}.") from None
    return head, tuple(signers)


def _check_head(head: dict[str, Any]) -> None:
    if set(head) != _HEAD or head["format"] != FORMAT:
        raise Altered("its head has other fields than an epoch's")
    for name, least, most in (("epoch", 1, 2**31), ("k", LEAST_K, 10**6), ("n_entries", 0, MAX_ENTRIES)):
        if type(head[name]) is not int or not least <= head[name] <= most:
            raise Altered(f"{name} is not a whole number from {least} to {most}")
    for name, pattern in (("created_at", _TIME), ("merkle_root", _HEX64), ("shape_version", _VERSION)):
        if not isinstance(head[name], str) or not pattern.fullmatch(head[name]):
            raise Altered(f"{name} is not of the form {pattern.pattern}")
    if head["prev"] != "" and not _is_hex64(head["prev"]):
        raise Altered("prev is no digest")


def _keys(listed: Any) -> dict[str, bytes]:
    """Public keys by id, which is their sha256."""
    keys: dict[str, bytes] = {}
    for entry in listed if isinstance(listed, list) and len(listed) <= 8 else []:
        if not isinstance(entry, dict) or set(entry) != {"keyid", "public_key"}:
            raise Altered("a key has keyid and public_key, nothing else")
        raw = unbase64(entry["public_key"], "a public key")
        if len(raw) != 32 or hashlib.sha256(raw).hexdigest() != entry["keyid"]:
            raise Altered("a key is not 32 bytes, or its keyid is not its sha256")
        keys[entry["keyid"]] = raw
    return keys


def _entries(rows: Any) -> tuple[Entry, ...]:
    if not isinstance(rows, list) or len(rows) > MAX_ENTRIES:
        raise InvalidEpoch(f"An epoch has a list of at most {MAX_ENTRIES} entries.")
    entries = []
    for row in rows:
        if (
            not isinstance(row, dict)
            or set(row) != {"run", "shape"}
            or not all(isinstance(v, str) for v in row.values())
        ):
            raise InvalidEpoch("An entry has a run and a shape, both texts.")
        kept = structural(row["shape"], row["run"])
        if kept is None or kept.run != row["run"]:
            raise InvalidEpoch("An entry holds more than structure; nothing of such a file is used.")
        entries.append(Entry(shape=row["shape"], run=row["run"]))
    if entries != _in_order(entries):
        raise InvalidEpoch("The entries are not in order, or one stands twice.")
    return tuple(entries)


def _doubts(head: dict[str, Any], signers: Sequence[str], keyring: Mapping[str, Any] | None) -> tuple[str, ...]:
    """`kolm_verify` judges keys by a signed document's own list and time, whatever the document is."""
    signed = Kolm(manifest=head, members=Members(b"", {}), signers=tuple(signers), receipts=())
    return tuple(doubt for signer in signers if (doubt := distrust(signer, signed, keyring)) is not None)


def _head_sha256(head: dict[str, Any]) -> str:
    return hashlib.sha256(canonical(head)).hexdigest()


def _is_hex64(value: Any) -> bool:
    return isinstance(value, str) and _HEX64.fullmatch(value) is not None
