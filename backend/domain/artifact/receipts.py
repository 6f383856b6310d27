"""Receipts: what a step did, as an in-toto Statement in a DSSE envelope, each naming the digest of the one before.

This makes and signs them; `kolm_verify` is the only judge. The format is described in docs/kolm-format.md.
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from backend.domain.artifact.kolm_verify import PREDICATE, STATEMENT, STATEMENT_TYPE, pae

_HEX64 = re.compile(r"[0-9a-f]{64}")


def keyid(public_raw: bytes) -> str:
    """The id of an Ed25519 public key: the sha256 of its 32 bytes, in hexadecimal."""
    return hashlib.sha256(public_raw).hexdigest()


def public_raw(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def step_statement(
    *,
    compile: str,
    step: str,
    seq: int,
    prev: str,
    inputs: Mapping[str, str],
    outputs: Mapping[str, str],
    teacher: Mapping[str, Any] | None = None,
    cost_microusd: int,
    waste_microusd: int = 0,
    started_at: str,
    ended_at: str,
    facts: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The statement of one step. `prev` is the sha256 of the previous envelope's payload, "" for seq 0.

    `inputs` and `outputs` are sha256 by name; the outputs are the statement's subjects. A step that leaves nothing
    behind testifies to its inputs, and without those to the compile's id. Raises ValueError for a float anywhere, a
    digest that is none, a prev that cannot be.
    """
    if seq < 0 or (seq == 0) != (prev == "") or (prev and not _HEX64.fullmatch(prev)):
        raise ValueError(f"Receipt {seq} cannot follow {prev!r}.")
    subjects = outputs or inputs or {compile: hashlib.sha256(compile.encode()).hexdigest()}
    statement = {
        "_type": STATEMENT,
        "subject": _resources(subjects),
        "predicateType": PREDICATE,
        "predicate": {
            "compile": compile,
            "step": step,
            "seq": seq,
            "prev": prev,
            "inputs": _resources(inputs),
            "outputs": _resources(outputs),
            "teacher": dict(teacher or {}),
            "cost_microusd": cost_microusd,
            "waste_microusd": waste_microusd,
            "started_at": started_at,
            "ended_at": ended_at,
            "facts": dict(facts or {}),
        },
    }
    refuse_floats(statement)
    return statement


def _resources(digests: Mapping[str, str]) -> list[dict[str, Any]]:
    """List the ResourceDescriptors of in-toto, by name."""
    for name, digest in digests.items():
        if not _HEX64.fullmatch(digest):
            raise ValueError(f"{name!r} is not named by a sha256: {digest[:80]!r}")
    return [{"name": name, "digest": {"sha256": digests[name]}} for name in sorted(digests)]


def refuse_floats(value: Any, pointer: str = "") -> None:
    """Raise ValueError when a float is anywhere in a value that will be signed: its spelling differs between
    languages.
    """
    if isinstance(value, float):
        raise ValueError(f"{pointer or 'the value'} is a float; sign integers, such as parts per million")
    if isinstance(value, Mapping):
        for key, item in value.items():
            refuse_floats(item, f"{pointer}/{key}")
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            refuse_floats(item, f"{pointer}/{i}")


def sign_envelope(payload: bytes, key: Ed25519PrivateKey, *, payload_type: str = STATEMENT_TYPE) -> dict[str, Any]:
    """A DSSE envelope with one Ed25519 signature over PAE(payload_type, payload)."""
    signature = key.sign(pae(payload_type, payload))
    return {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": payload_type,
        "signatures": [{"keyid": keyid(public_raw(key)), "sig": base64.b64encode(signature).decode()}],
    }


def payload_of(envelope: Mapping[str, Any]) -> bytes:
    """The payload of an envelope of our own making; nothing is verified."""
    return base64.b64decode(envelope["payload"], validate=True)
