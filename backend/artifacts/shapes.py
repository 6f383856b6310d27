"""Rows as the JSON that the API answers, and as webhooks tell of them."""

from typing import Any

from django.conf import settings

from backend.artifacts.models import Artifact, Receipt
from backend.domain.ids import Prefix, encode_id
from backend.rest.times import rfc3339


def artifact_shape(row: Artifact) -> dict[str, Any]:
    return {
        "id": encode_id(Prefix.ARTIFACT, row.id),
        "object": "artifact",
        "compile": encode_id(Prefix.COMPILE, row.compile_id),
        "name": row.name,
        "version": row.version,
        "sha256": row.sha256,
        "size_bytes": row.size_bytes,
        "k_score_ppm": row.k_score_ppm,
        "evaluation": row.evaluation,
        "manifest": row.manifest,
        "created_at": rfc3339(row.created_at),
        "revoked_at": rfc3339(row.revoked_at),
        "revoked_reason": row.revoked_reason if row.revoked_at else None,
    }


def notice_shape(row: Artifact) -> dict[str, Any]:
    """Return the artifact as webhooks show it: without the manifest and the evaluation, with the address of the
    whole."""
    shape = artifact_shape(row)
    del shape["manifest"], shape["evaluation"]
    return shape | {"url": f"{settings.KOLM_PUBLIC_URL}/v1/artifacts/{shape['id']}"}


def receipt_shape(row: Receipt) -> dict[str, Any]:
    return {
        "id": encode_id(Prefix.RECEIPT, row.id),
        "object": "receipt",
        "seq": row.seq,
        "step": row.step,
        "payload_sha256": row.payload_sha256,
        "envelope": row.envelope,
        "created_at": rfc3339(row.created_at),
    }
