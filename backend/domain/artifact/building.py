"""Building a `.kolm`: the same members, fields and key give the same bytes. The format is in docs/kolm-format.md.

Reading is `kolm_verify`'s alone, also here: what was built is verified before it is returned, so nothing leaves that
a customer's verifier would refuse.
"""

import base64
import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from backend.domain.artifact.kolm_verify import (
    FORMAT,
    MANIFEST,
    MANIFEST_TYPE,
    SIGNATURES,
    KolmFileError,
    central_directory,
    local_header,
    order,
    read_kolm,
)
from backend.domain.artifact.receipts import keyid, payload_of, public_raw, refuse_floats, sign_envelope
from backend.domain.canonical import canonical_json


def build_kolm(
    members: Mapping[str, bytes],
    *,
    manifest_fields: Mapping[str, Any],
    key: Ed25519PrivateKey,
    key_id: str | None = None,
    other_public_keys: Sequence[bytes] = (),
) -> bytes:
    """The bytes of a `.kolm` with these members; manifest.json and signatures.json are made here.

    `manifest_fields` are name, compile, tenant_digest, task_type, created_at, base, k_score_ppm, gate and whatever
    else should be signed; `receipt_head` is filled in from the last receipt. `other_public_keys` (32 raw bytes each)
    are those of receipts that another key signed. Raises ValueError when the outcome would not verify.
    """
    own = public_raw(key)
    if key_id is not None and key_id != keyid(own):
        raise ValueError("key_id is not the id of the key")
    if {MANIFEST, SIGNATURES} & set(members):
        raise ValueError("manifest.json and signatures.json are made by build_kolm")
    manifest = {
        "receipt_head": _receipt_head(members),
        **manifest_fields,
        "format": FORMAT,
        "keys": [
            {"keyid": keyid(raw), "public_key": base64.b64encode(raw).decode()}
            for raw in _unique(own, other_public_keys)
        ],
        "members": [
            {"path": path, "size": len(members[path]), "sha256": hashlib.sha256(members[path]).hexdigest()}
            for path in sorted(members)
        ],
    }
    refuse_floats(manifest)
    signed = canonical_json(manifest)
    signatures = canonical_json(sign_envelope(signed, key, payload_type=MANIFEST_TYPE))
    data = pack({**members, MANIFEST: signed, SIGNATURES: signatures})
    try:
        read_kolm(data)
    except KolmFileError as fault:
        raise ValueError(f"these members do not make a valid .kolm: {fault}") from fault
    return data


def pack(members: Mapping[str, bytes]) -> bytes:
    """The container alone: the one zip file that kolm/1 allows for these members (manifest.json and signatures.json
    included).
    """
    parts: list[bytes] = []
    entries: list[tuple[str, int, int, int]] = []
    at = 0
    for name in order(members):
        data = members[name]
        header = local_header(name, data)
        entries.append((name, zlib.crc32(data), len(data), at))
        parts += [header, data]
        at += len(header) + len(data)
    return b"".join([*parts, central_directory(entries)])


def _receipt_head(members: Mapping[str, bytes]) -> str:
    paths = sorted(path for path in members if path.startswith("receipts/"))
    if not paths:
        raise ValueError("a .kolm carries the receipts of its compile; there are none")
    return hashlib.sha256(payload_of(json.loads(members[paths[-1]]))).hexdigest()


def _unique(own: bytes, others: Sequence[bytes]) -> list[bytes]:
    return list(dict.fromkeys([own, *others]))
