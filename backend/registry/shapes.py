"""Rows of the registry as the JSON that the API answers."""

from typing import Any

from backend.domain.ids import Prefix, encode_id
from backend.registry.models import Contribution, Epoch
from backend.rest.times import rfc3339


def epoch_shape(row: Epoch) -> dict[str, Any]:
    return {
        "id": encode_id(Prefix.EPOCH, row.id),
        "object": "registry_epoch",
        "epoch": row.number,
        "sha256": row.sha256,
        "size_bytes": row.size_bytes,
        "merkle_root": row.merkle_root,
        "shape_version": row.shape_version,
        "k": row.k,
        "n_entries": row.n_entries,
        "created_at": rfc3339(row.created_at),
    }


def contribution_shape(row: Contribution) -> dict[str, Any]:
    return {
        "object": "registry_contribution",
        "shape": row.shape,
        "run": row.run,
        "shape_version": row.shape_version,
        "created_at": rfc3339(row.created_at),
        "seen_at": rfc3339(row.seen_at),
    }
