"""A new embedder: the sources of the old one are not seen by look-ups any more, until their slices are embedded again.

Moving is done a batch at a time, in the background. Killed in the middle it goes on where it was; done twice at once it
does the same work twice and moves each source once. The old scope's row stays, empty, with what was learnt at the old
distances. Label drafts are found by their prompt and belong to no embedder.
"""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import numpy as np
from django.db import connection
from django.db.models import Exists, OuterRef

from backend.drafts.models import Draft, FamilyKey, Scope, Source
from backend.drafts.vault import open_vault
from backend.tenants.isolation import tenant_scope

Embed = Callable[[list[str]], Any]  # texts in, (n, d) float32 unit rows out


def stale_scopes(tenant_id: UUID, family: str, teacher: str, embedder: str) -> list[Scope]:
    """The family's scopes of this teacher whose sources another embedder placed; inside the tenant's scope."""
    rows = Scope.objects.filter(tenant_id=tenant_id, family=family, teacher=teacher).exclude(
        embedder__in=["", embedder]
    )
    with_sources = Source.objects.filter(tenant_id=tenant_id, scope_id=OuterRef("id"))
    return list(rows.filter(Exists(with_sources)).order_by("id"))


def move_sources(tenant_id: UUID, scope_id: UUID, embed: Embed, embedder: str, batch: int = 64) -> int:
    """Embed one batch of a scope's sources again and move them, with their drafts, to the scope of `embedder`; returns
    how many were moved, 0 when none is left. No transaction is open while `embed` works."""
    with tenant_scope(tenant_id):
        scope = Scope.objects.filter(tenant_id=tenant_id, id=scope_id).exclude(embedder__in=["", embedder]).first()
        vault = None if scope is None else open_vault(tenant_id, scope.family)
        if scope is None or vault is None:
            return 0
        rows = Source.objects.filter(tenant_id=tenant_id, scope_id=scope_id).order_by("id")
        sources = list(rows.only("id", "prompt_sealed")[:batch])
    if not sources:
        return 0
    texts = [vault.unseal_json(bytes(source.prompt_sealed))["slice_text"] for source in sources]
    vectors = vault.rotate(np.asarray(embed(texts), dtype=np.float32))
    return _move(tenant_id, scope, embedder, [source.id for source in sources], vectors)


def _move(tenant_id: UUID, old: Scope, embedder: str, source_ids: list[UUID], vectors: Any) -> int:
    """The family's key is held, so that a purge comes before all of this or after it; what another process moved or
    deleted in the meantime is left alone."""
    with tenant_scope(tenant_id), connection.cursor() as cursor:
        keys = FamilyKey.objects.filter(tenant_id=tenant_id, family=old.family)
        if not keys.select_for_update(no_key=True) or not Scope.objects.filter(tenant_id=tenant_id, id=old.id).exists():
            return 0
        named = {"family": old.family, "teacher": old.teacher, "embedder": embedder}
        new, _ = Scope.objects.get_or_create(tenant_id=tenant_id, **named)
        cursor.execute(
            "UPDATE drafts_source s SET scope_id = %(new)s, embedding = v.embedding::halfvec"
            " FROM unnest(%(ids)s::uuid[], %(vectors)s::text[]) AS v (id, embedding)"
            " WHERE s.tenant_id = %(tenant)s AND s.id = v.id AND s.scope_id = %(old)s RETURNING s.id",
            {
                "tenant": tenant_id,
                "old": old.id,
                "new": new.id,
                "ids": source_ids,
                "vectors": [str(row.tolist()) for row in vectors],
            },
        )
        moved = [id for (id,) in cursor.fetchall()]
        Draft.objects.filter(tenant_id=tenant_id, source_id__in=moved).update(scope_id=new.id)
        return len(moved)
