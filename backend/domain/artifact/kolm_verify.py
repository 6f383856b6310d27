#!/usr/bin/env python3
"""Verify a `.kolm` file offline. One file; needs Python 3.9+ and `cryptography`, nothing else of kolm.

    python kolm_verify.py FILE [--keyring FILE] [--json]

    0  trusted: intact, and every signature is by a key that your keyring trusts
    3  intact but untrusted: whole and signed, by a key that is unknown, was outside its validity, or is revoked
    1  altered or broken: this is not what was signed
    2  not a `.kolm` file
    70 the verifier itself cannot run (`cryptography` is missing)

The format, and every rule below, is in docs/kolm-format.md. Nothing is ever decompressed, extracted or executed;
members are handed out only after the whole file has been checked. Keyring: JSON, by default $KOLM_KEYRING or
~/.config/kolm/keyring.json.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import hashlib
import json
import math
import os
import re
import struct
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

FORMAT = "kolm/1"
MANIFEST, SIGNATURES = "manifest.json", "signatures.json"
MANIFEST_TYPE = "application/vnd.kolm.manifest+json"
STATEMENT_TYPE = "application/vnd.in-toto+json"
STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://kolm.dev/attestations/compile-step/v1"
SUFFIXES = (".json", ".jsonl", ".safetensors", ".txt", ".md")  # nothing that a loader would execute: no pickles

MAX_FILE = 2 * 1024**3
MAX_MEMBERS = 10_000
MAX_NAME = 255
MAX_JSON = 8 * 1024**2  # a document that this verifier parses
MAX_SIGNATURES = 8

_LOCAL, _CENTRAL, _END = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?Z")


class KolmFileError(Exception):
    """The reason why a file was refused; `exit_code` as in the module's docstring."""

    exit_code = 1


class NotAnArtifact(KolmFileError):
    exit_code = 2


class Altered(KolmFileError):
    exit_code = 1


class Untrusted(KolmFileError):
    exit_code = 3


# --- container ------------------------------------------------------------------------------------------------------


def local_header(name: str, data: Any) -> bytes:
    """The one spelling of a member's local header: stored, no flags, 1980-01-01, no extra field."""
    raw, crc, size = name.encode("ascii"), zlib.crc32(data), len(data)
    return struct.pack("<4s5H3L2H", _LOCAL, 20, 0, 0, 0, 0x21, crc, size, size, len(raw), 0) + raw


def central_directory(entries: Iterable[tuple[str, int, int, int]]) -> bytes:
    """Central directory and end record for (name, crc32, size, offset); made on Unix, a regular file of mode 0644, no
    comments.
    """
    out, n, offset = [], 0, 0
    for name, crc, size, at in entries:
        raw = name.encode("ascii")
        fields = (_CENTRAL, 3 << 8 | 20, 20, 0, 0, 0, 0x21, crc, size, size, len(raw), 0, 0, 0, 0, 0o100644 << 16, at)
        out.append(struct.pack("<4s6H3L5H2L", *fields) + raw)
        n, offset = n + 1, at + 30 + len(raw) + size
    directory = b"".join(out)
    return directory + struct.pack("<4s4H2LH", _END, 0, 0, n, n, len(directory), offset, 0)


def order(names: Iterable[str]) -> list[str]:
    """manifest.json first, signatures.json last, the rest by byte value."""
    rest = sorted(set(names) - {MANIFEST, SIGNATURES})
    return [MANIFEST, *rest, SIGNATURES]


class Members(Mapping[str, bytes]):
    """Members by path, cut from the file's bytes when asked for: a large adapter is not held twice."""

    def __init__(self, data: bytes, spans: Mapping[str, tuple[int, int]]) -> None:
        self._data, self._spans = data, spans

    def __getitem__(self, name: str) -> bytes:
        start, end = self._spans[name]
        return self._data[start:end]

    def __iter__(self) -> Iterator[str]:
        return iter(self._spans)

    def __len__(self) -> int:
        return len(self._spans)

    def size(self, name: str) -> int:
        start, end = self._spans[name]
        return end - start

    def sha256(self, name: str) -> str:
        start, end = self._spans[name]
        return hashlib.sha256(memoryview(self._data)[start:end]).hexdigest()


def read_members(data: bytes) -> Members:
    """The members, after every byte that is not a member's content was compared with what kolm/1 prescribes for it."""
    if not data.startswith(_LOCAL) or data[30 : 30 + len(MANIFEST)] != MANIFEST.encode():
        raise NotAnArtifact("this is not a .kolm file: it does not begin with a zip entry named manifest.json")
    if len(data) > MAX_FILE:
        raise Altered(f"the file is larger than {MAX_FILE} bytes")
    view, at = memoryview(data), 0
    spans: dict[str, tuple[int, int]] = {}
    entries: list[tuple[str, int, int, int]] = []
    while data.startswith(_LOCAL, at):
        if len(entries) == MAX_MEMBERS:
            raise Altered(f"more than {MAX_MEMBERS} members")
        name, start, end = _read_local(data, at)
        if name in spans:
            raise Altered(f"member {name} stands twice")
        if view[at:start] != local_header(name, view[start:end]):
            raise Altered(
                f"member {name}: its header or content was changed (checksum, flags, method, time or extra field)"
            )
        entries.append((name, zlib.crc32(view[start:end]), end - start, at))
        spans[name] = (start, end)
        at = end
    if view[at:] != central_directory(entries):
        raise Altered(
            "the zip directory is not the one that belongs to the members (changed, truncated, or bytes were added)"
        )
    _check_names(list(spans))
    return Members(data, spans)


def _read_local(data: bytes, at: int) -> tuple[str, int, int]:
    if len(data) < at + 30:
        raise Altered("the file is cut off in a member's header")
    method, size, n_name, n_extra = (
        *struct.unpack_from("<H", data, at + 8),
        *struct.unpack_from("<L2H", data, at + 22),
    )
    raw = data[at + 30 : at + 30 + n_name]
    start = at + 30 + n_name + n_extra
    if method != 0:
        raise Altered(f"member {raw[:60]!r} is compressed; kolm/1 stores every member as it is")
    if n_name > MAX_NAME or start + size > len(data):
        raise Altered(f"member {raw[:60]!r}: the name is too long, or the file ends before its content does")
    return _checked_name(raw), start, start + size


def _checked_name(raw: bytes) -> str:
    """A relative path of plain ASCII segments with an allowed suffix; excludes `..`, absolute, backslash, NUL, drive
    letters.
    """
    name = raw.decode("ascii", "replace")
    if not all(_SEGMENT.fullmatch(part) for part in name.split("/")):
        raise Altered(f"member name {raw[:60]!r} is not a plain relative path")
    if not name.endswith(SUFFIXES):
        raise Altered(f"member {name} has a suffix that a .kolm does not carry")
    return name


def _check_names(names: Sequence[str]) -> None:
    if SIGNATURES not in names:
        raise Altered("signatures.json is missing")
    if list(names) != order(names):
        raise Altered("members are not in order: manifest.json, the others by name, signatures.json")
    folded = {name.lower() for name in names}
    folders = {"/".join(name.lower().split("/")[:i]) for name in names for i in range(1, name.count("/") + 1)}
    if len(folded) != len(names) or folded & folders:
        raise Altered(
            "two member names fall together on a file system that ignores case, or one is a folder of another"
        )


# --- documents ------------------------------------------------------------------------------------------------------


def canonical(value: Any) -> bytes:
    """RFC 8785 for values without floats: keys by UTF-16 code units, no white space, integers within 2^53 - 1."""
    if isinstance(value, dict):
        items = sorted(value.items(), key=lambda item: item[0].encode("utf-16-be", "surrogatepass"))
        return b"{" + b",".join(canonical(key) + b":" + canonical(item) for key, item in items) + b"}"
    if isinstance(value, list):
        return b"[" + b",".join(map(canonical, value)) + b"]"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 2**53 - 1:
        raise Altered("a document holds an integer beyond 2^53 - 1")
    return json.dumps(value, ensure_ascii=False).encode("utf-8")


def _no_float(text: str) -> Any:
    raise Altered(f"a signed document holds the float {text[:30]}")


def parse_canonical(data: bytes, what: str) -> dict[str, Any]:
    """A JSON object that is spelled canonically: there is one spelling, so any change of a byte is a change of the
    value or a fault.
    """
    if len(data) > MAX_JSON:
        raise Altered(f"{what} is larger than {MAX_JSON} bytes")
    try:
        value = json.loads(data, parse_float=_no_float, parse_constant=_no_float)
        same = isinstance(value, dict) and canonical(value) == data
    except (ValueError, RecursionError) as fault:
        raise Altered(f"{what} is not JSON: {fault}") from None
    if not same:
        raise Altered(f"{what} is not an object in canonical form (RFC 8785)")
    assert isinstance(value, dict)
    return value


def unbase64(text: Any, what: str) -> bytes:
    """Standard base64 with padding, in its one spelling."""
    try:
        raw = base64.b64decode(text, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise Altered(f"{what} is not base64") from None
    if not isinstance(text, str) or base64.b64encode(raw).decode() != text:
        raise Altered(f"{what} is not canonical base64")
    return raw


def pae(payload_type: str, payload: bytes) -> bytes:
    """DSSE v1 pre-authentication encoding: what is signed."""
    return b"DSSEv1 %d %s %d %s" % (len(payload_type), payload_type.encode(), len(payload), payload)


def open_envelope(data: bytes, payload_type: str, keys: Mapping[str, bytes], what: str) -> tuple[bytes, list[str]]:
    """The payload and the ids of the keys that signed it. Every signature must be by one of `keys` and must hold."""
    envelope = parse_canonical(data, what)
    if set(envelope) != {"payload", "payloadType", "signatures"} or envelope["payloadType"] != payload_type:
        raise Altered(f"{what} is not a DSSE envelope of type {payload_type}")
    payload = unbase64(envelope["payload"], f"the payload of {what}")
    signatures = envelope["signatures"]
    if not isinstance(signatures, list) or not 1 <= len(signatures) <= MAX_SIGNATURES:
        raise Altered(f"{what} needs 1 to {MAX_SIGNATURES} signatures")
    keyids = []
    for signature in signatures:
        if not isinstance(signature, dict) or set(signature) != {"keyid", "sig"}:
            raise Altered(f"{what}: a signature has keyid and sig, nothing else")
        keyid = signature["keyid"]
        if not isinstance(keyid, str) or keyid not in keys or keyid in keyids:
            raise Altered(f"{what} is signed by a key that the manifest does not list, or twice by one key")
        if not _signature_holds(
            keys[keyid], unbase64(signature["sig"], f"a signature of {what}"), pae(payload_type, payload)
        ):
            raise Altered(f"{what}: the signature does not belong to the payload")
        keyids.append(keyid)
    return payload, keyids


def _signature_holds(public_raw: bytes, signature: bytes, message: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(public_raw).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


# --- the file as a whole --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kolm:
    """A file that is intact. `signers` are the ids of all keys that signed it or one of its receipts, the manifest's
    own first.
    """

    manifest: dict[str, Any]
    members: Members
    signers: tuple[str, ...]
    receipts: tuple[dict[str, Any], ...]


def read_kolm(data: bytes) -> Kolm:
    """Everything but the question whose keys these are. Raises NotAnArtifact or Altered; what it returns is what was
    signed.
    """
    members = read_members(data)
    manifest = parse_canonical(members[MANIFEST], MANIFEST)
    _check_fields(manifest)
    keys = _keys(manifest)
    _check_members(manifest, members)
    payload, signers = open_envelope(members[SIGNATURES], MANIFEST_TYPE, keys, SIGNATURES)
    if payload != members[MANIFEST]:
        raise Altered("signatures.json signs another manifest")
    receipts, receipt_signers = _check_receipts(manifest, members, keys)
    _check_verdict(manifest, members)
    everyone = dict.fromkeys([*signers, *receipt_signers])
    if set(everyone) != set(keys):
        raise Altered("the manifest lists a key that signed nothing")
    return Kolm(manifest=manifest, members=members, signers=tuple(everyone), receipts=tuple(receipts))


_PATTERNS = {
    "format": re.escape(FORMAT),
    "name": r"[a-z0-9][a-z0-9-]{0,63}",
    "compile": r"[A-Za-z0-9_-]{1,64}",
    "tenant_digest": r"[0-9a-f]{64}",
    "task_type": r"[a-z]{1,16}",
    "created_at": _TIME.pattern,
    "gate": "passed",
    "receipt_head": r"[0-9a-f]{64}",
}


def _check_fields(manifest: dict[str, Any]) -> None:
    """Check what every manifest has; a signer may add fields."""
    for name, pattern in _PATTERNS.items():
        value = manifest.get(name)
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise Altered(f"manifest.json: {name} is missing or not of the form {pattern}")
    try:
        _when(manifest["created_at"])
    except ValueError:
        raise Altered("manifest.json: created_at is no time") from None
    base, score = manifest.get("base"), manifest.get("k_score_ppm")
    if not isinstance(base, dict) or not isinstance(base.get("id"), str) or not _is_digest(base.get("sha256")):
        raise Altered("manifest.json: base has no id, or no sha256")
    if type(score) is not int or not 0 <= score <= 1_000_000:
        raise Altered("manifest.json: k_score_ppm is not a whole number from 0 to 1,000,000")
    if not isinstance(manifest.get("keys"), list) or not isinstance(manifest.get("members"), list):
        raise Altered("manifest.json has no list of keys, or none of members")


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value) is not None


def _keys(manifest: dict[str, Any]) -> dict[str, bytes]:
    """Public keys by id; an id is the sha256 of the key, so a key cannot be listed under another's name."""
    keys: dict[str, bytes] = {}
    for entry in manifest["keys"]:
        if not isinstance(entry, dict) or set(entry) != {"keyid", "public_key"}:
            raise Altered("manifest.json: a key has keyid and public_key, nothing else")
        raw = unbase64(entry["public_key"], "a public key")
        if len(raw) != 32 or hashlib.sha256(raw).hexdigest() != entry["keyid"] or entry["keyid"] in keys:
            raise Altered("manifest.json: a key is not 32 bytes, stands twice, or its keyid is not its sha256")
        keys[entry["keyid"]] = raw
    return keys


def _check_members(manifest: dict[str, Any], members: Members) -> None:
    """The list and the file name the same members, of the same sizes and digests."""
    listed: list[str] = []
    for entry in manifest["members"]:
        if (
            not isinstance(entry, dict)
            or set(entry) != {"path", "size", "sha256"}
            or not isinstance(entry["path"], str)
        ):
            raise Altered("manifest.json: a member has path, size and sha256, nothing else")
        path = entry["path"]
        listed.append(path)
        if path not in members:
            raise Altered(f"member {path[:60]} is listed but missing")
        if type(entry["size"]) is not int or entry["size"] != members.size(path):
            raise Altered(f"member {path} has another size than was signed")
        if entry["sha256"] != members.sha256(path):
            raise Altered(f"member {path} is not the one that was signed")
    if listed != [name for name in members if name not in (MANIFEST, SIGNATURES)]:
        raise Altered("the manifest does not list exactly the members that are there, in their order")


def _check_receipts(
    manifest: dict[str, Any], members: Members, keys: Mapping[str, bytes]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Receipts are numbered 00, 01, ... in path order; each names the digest of the payload before it, the last one
    is the head.
    """
    paths = [name for name in members if name.startswith("receipts/")]
    receipts: list[dict[str, Any]] = []
    signers: list[str] = []
    head = ""
    for seq, path in enumerate(paths):
        payload, keyids = open_envelope(members[path], STATEMENT_TYPE, keys, path)
        statement = parse_canonical(payload, f"the statement in {path}")
        _check_statement(statement, path, seq=seq, prev=head, compile_id=manifest["compile"])
        head = hashlib.sha256(payload).hexdigest()
        receipts.append(statement)
        signers += keyids
    if not receipts or head != manifest["receipt_head"]:
        raise Altered(
            "the receipts do not end at the manifest's receipt_head: one is missing, or they are another artifact's"
        )
    return receipts, signers


def _check_statement(statement: dict[str, Any], path: str, *, seq: int, prev: str, compile_id: str) -> None:
    predicate = statement.get("predicate")
    if (
        statement.get("_type") != STATEMENT
        or statement.get("predicateType") != PREDICATE
        or not isinstance(predicate, dict)
    ):
        raise Altered(f"{path} is not an in-toto statement about a compile step")
    if predicate.get("seq") != seq or type(predicate.get("seq")) is not int or predicate.get("prev") != prev:
        raise Altered(f"{path} does not follow the receipt before it")
    if predicate.get("compile") != compile_id:
        raise Altered(f"{path} is a receipt of another compile")
    step = predicate.get("step")
    if not isinstance(step, str) or path != f"receipts/{seq:02d}-{step}.dsse.json":
        raise Altered(f"{path} is not named after its place and step: a receipt is missing, added or renamed")


def _check_verdict(manifest: dict[str, Any], members: Members) -> None:
    """The score on the cover is the score inside, and the gate inside was passed."""
    for path in ("k_score.json", "gate.json"):
        if path not in members:
            raise Altered(f"{path} is missing")
    score = parse_canonical(members["k_score.json"], "k_score.json")
    composite = score.get("composite_ppm")
    if type(composite) is not int or composite != manifest["k_score_ppm"]:
        raise Altered("k_score.json and manifest.json name different K-scores")
    if score.get("formula") in FORMULAS:  # a later one is its signer's word, as is a score without its figures
        check_k_score(score)
    if parse_canonical(members["gate.json"], "gate.json").get("passed") is not True:
        raise Altered("gate.json says that the gate was not passed")


FORMULAS = ("k-score-1", "k-score-2")
WEIGHTS = {"accuracy": 40, "size": 15, "latency": 15, "cost": 15, "coverage": 15}  # percent
SCALES = {"answer": (100_000, 1), "token": (100_000, 64)}  # of k-score-2: microseconds of L = 1/2, KiB of S = 1
REFERENCE_NS = 4_000_000


def check_k_score(score: Mapping[str, Any]) -> None:
    """Recompute the axes of a score from its figures, and the sum from its axes (docs/kolm-format.md, section 8)."""
    figures = [f"{axis}_ppm" for axis in WEIGHTS] + ["size_bytes", "cost_nanousd", "p50_us"]
    is_second = score["formula"] == "k-score-2"
    if is_second:
        figures += ["own_us", "measured_ns", "reference_ns", "units_milli"]
    if not all(type(score.get(name)) is int and score[name] >= 0 for name in figures):
        raise Altered("k_score.json lacks a figure of its formula, or holds one that is no whole number")
    if is_second and score.get("unit") not in SCALES:
        raise Altered("k_score.json names no unit that its formula knows")
    time_us, (half_us, free_kib) = score["p50_us"], (100_000, 1)
    if is_second:
        time_us, (half_us, free_kib) = score["own_us"], SCALES[score["unit"]]
        measured, reference = score["measured_ns"], score["reference_ns"]
        if time_us != (measured * REFERENCE_NS // (reference * 1000) if reference else measured // 1000):
            raise Altered("k_score.json: own_us is not what was measured beside the reference")
    kib = max(1.0, score["size_bytes"] / 1024 / free_kib)
    axes = {
        "size": max(0.0, 1 - math.log2(kib) / 30),
        "latency": 1 / (1 + time_us / half_us),
        "cost": 1 / (1 + score["cost_nanousd"] / 1e6),
    }
    for axis, value in axes.items():
        if abs(score[f"{axis}_ppm"] - round(1_000_000 * value)) > 1:  # logarithms differ in their last bit
            raise Altered(f"k_score.json: {axis}_ppm is not what its figures give")
    if score["composite_ppm"] != sum(weight * score[f"{axis}_ppm"] for axis, weight in WEIGHTS.items()) // 100:
        raise Altered("k_score.json: composite_ppm is not the sum of its axes")


# --- trust ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """`status` is trusted, untrusted, altered or not_an_artifact. `reasons` are sentences; `manifest` is None unless
    the file is intact.
    """

    exit_code: int
    status: str
    reasons: tuple[str, ...]
    manifest: dict[str, Any] | None
    keyid: str | None

    def to_json(self) -> dict[str, Any]:
        return {
            "exit_code": self.exit_code,
            "status": self.status,
            "reasons": list(self.reasons),
            "keyid": self.keyid,
            "manifest": self.manifest,
        }


def verify(data: bytes, keyring: Mapping[str, Any] | None) -> Verdict:
    """The verdict on a file's bytes. `keyring` is the parsed keyring JSON; None trusts nobody. Never raises for bad
    bytes.
    """
    try:
        kolm = read_kolm(data)
    except KolmFileError as fault:
        status = "not_an_artifact" if fault.exit_code == 2 else "altered"
        return Verdict(fault.exit_code, status, (str(fault),), None, None)
    doubts = tuple(doubt for keyid in kolm.signers if (doubt := distrust(keyid, kolm, keyring)))
    code, status = (3, "untrusted") if doubts else (0, "trusted")
    return Verdict(code, status, doubts, kolm.manifest, kolm.signers[0])


def distrust(keyid: str, kolm: Kolm, keyring: Mapping[str, Any] | None) -> str | None:
    """Return why a key is not trusted to have signed this file, or None when it is.

    Validity is that of the signing time the manifest states. A thief could state an earlier one, so a revoked key is
    trusted for nothing.
    """
    listed = (keyring or {}).get("keys")
    entries = (
        [e for e in listed if isinstance(e, Mapping) and e.get("keyid") == keyid] if isinstance(listed, list) else []
    )
    if len(entries) != 1:
        missing = "is not in your keyring (a deployment that has a new key publishes it: pin it with kolm trust)"
        problem = missing if not entries else "stands more than once in your keyring"
        return f"unknown key: {keyid} {problem}"
    entry = entries[0]
    public = next(k["public_key"] for k in kolm.manifest["keys"] if k["keyid"] == keyid)
    if entry.get("public_key") != public:
        return f"unknown key: your keyring holds another public key under {keyid}"
    name = f"{keyid} ({entry.get('name')})"
    if entry.get("revoked_at") is not None:
        return f"revoked key: {name} was revoked at {entry['revoked_at']}"
    try:
        signed, start, end = (
            _when(t) for t in (kolm.manifest["created_at"], entry.get("not_before"), entry.get("not_after"))
        )
    except (TypeError, ValueError):
        return f"unknown key: the validity of {name} in your keyring is not two UTC times"
    if signed < start:
        return f"key not valid yet: {name} from {entry['not_before']} on; the file is of {kolm.manifest['created_at']}"
    if signed > end:
        return (
            f"expired key: {name} was valid until {entry['not_after']} and the file is of {kolm.manifest['created_at']}"
        )
    return None


def _when(text: Any) -> datetime:
    if not isinstance(text, str) or not _TIME.fullmatch(text):
        raise ValueError("not a UTC time")
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def load_verified(
    source: bytes | str | os.PathLike[str], keyring: Mapping[str, Any] | None, allow_untrusted: bool = False
) -> Kolm:
    """Load a file's content, only if it is intact, and trusted (or `allow_untrusted`): every loader uses this.

    Raises NotAnArtifact, Altered or Untrusted. A path is read once, so what was checked is what is used."""
    data = source if isinstance(source, bytes) else read_file(source)
    kolm = read_kolm(data)
    if not allow_untrusted:
        doubts = [doubt for keyid in kolm.signers if (doubt := distrust(keyid, kolm, keyring))]
        if doubts:
            raise Untrusted("; ".join(doubts))
    return kolm


def read_file(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a regular file of acceptable size."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_FILE + 1) if os.path.getsize(path) <= MAX_FILE else None
    except (OSError, ValueError) as fault:
        raise NotAnArtifact(f"cannot read {path}: {fault}") from None
    if data is None or len(data) > MAX_FILE:
        raise Altered(f"{path} is larger than {MAX_FILE} bytes")
    return data


# --- command line ---------------------------------------------------------------------------------------------------


def default_keyring() -> str:
    return os.environ.get("KOLM_KEYRING") or os.path.join(os.path.expanduser("~"), ".config", "kolm", "keyring.json")


def read_keyring(path: str) -> tuple[dict[str, Any] | None, str | None]:
    """(keyring, None), or (None, why there is none): without one nobody is trusted, and the file can still be
    intact.
    """
    try:
        with open(path, "rb") as file:
            keyring = json.loads(file.read(MAX_JSON))
    except FileNotFoundError:
        return None, f"there is no keyring at {path}"
    except (OSError, ValueError, RecursionError) as fault:
        return None, f"the keyring at {path} cannot be read: {fault}"
    if not isinstance(keyring, dict) or not isinstance(keyring.get("keys"), list):
        return None, f'the keyring at {path} is not an object with a list "keys"'
    return keyring, None


def _print(verdict: Verdict, path: str) -> None:
    words = {0: "trusted", 1: "ALTERED OR BROKEN", 2: "not a .kolm file", 3: "intact, but NOT TRUSTED"}
    print(f"{path}: {words[verdict.exit_code]}")
    for reason in verdict.reasons:  # reasons quote what others wrote: no control character reaches the terminal
        print("  " + "".join(char if char.isprintable() else "?" for char in reason))
    if verdict.manifest is not None:
        manifest = verdict.manifest
        print(
            f"  {manifest['name']}, {manifest['compile']}, {manifest['created_at']}, {len(manifest['members'])} members"
        )
        score = manifest["k_score_ppm"] // 1_000 / 1_000
        print(f"  K-score {score:.3f}, gate {manifest['gate']}, signed by {verdict.keyid}")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Verify a .kolm file offline: 0 trusted, 3 untrusted key, 1 altered, 2 not a .kolm."
    )
    parser.add_argument("file")
    parser.add_argument("--keyring", default=None, help="default: $KOLM_KEYRING or ~/.config/kolm/keyring.json")
    parser.add_argument("--json", action="store_true", help="the verdict as JSON")
    options = parser.parse_args(argv)
    keyring, problem = read_keyring(options.keyring or default_keyring())
    try:
        verdict = verify(read_file(options.file), keyring)
    except KolmFileError as fault:
        status = "not_an_artifact" if fault.exit_code == 2 else "altered"
        verdict = Verdict(fault.exit_code, status, (str(fault),), None, None)
    except ImportError as fault:
        print(f"kolm_verify needs the package cryptography: pip install cryptography ({fault})", file=sys.stderr)
        return 70
    if problem and verdict.exit_code == 3:
        verdict = Verdict(3, verdict.status, (problem, *verdict.reasons), verdict.manifest, verdict.keyid)
    if options.json:
        print(json.dumps(verdict.to_json(), indent=2, sort_keys=True))  # ASCII: no character acts on a terminal
    else:
        _print(verdict, options.file)
    return verdict.exit_code


if __name__ == "__main__":
    sys.exit(main())
