"""Deleting drafts for good: a family, one draft, all of a tenant.

A family's texts (its drafts, prompts and label answers) are sealed with the family's key, which lies in the database
under the deployment's. Deleting that row is what deletes the texts: dead rows in the data files, the write-ahead log,
replicas and backups of the other tables do not open without it.

What that does not do. The deleted row with the sealed key itself stays in the table's file until it is vacuumed and
overwritten, in the write-ahead log until that is recycled, and in backups until they are thrown away; who has one of
those *and* KOLM_SEALING_KEY can open the family's texts. `manage.py shred_drafts` shortens the first two. Vectors are
rotated by the same key and are no texts, but they tell which slices were alike. The names of families stay in the logs
of offers, verdicts and outcomes, which hold numbers and ids and are append-only. A single draft has no key of its own:
after `delete_draft` its sealed text opens with the family's key until its place in the file is overwritten.

An admission under way holds the family's key; a purge waits for it, and one that comes later makes a new key. A purge
that finds no key makes one to hold: without it an admission could write beside it, below a scope that it takes away.
"""

from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from django.db import connection

from backend.domain.ids import Prefix, encode_id
from backend.drafts.models import FamilyKey, Scope, Source
from backend.tenants import audit
from backend.tenants.actors import SYSTEM, Actor
from backend.tenants.isolation import set_tenant, tenant_scope

BATCH = 1_000  # sources with their drafts in one statement, which has 30 s


@dataclass(frozen=True, slots=True, kw_only=True)
class Purged:
    """The numbers of rows that went."""

    n_keys: int = 0
    n_scopes: int = 0
    n_sources: int = 0
    n_drafts: int = 0
    n_label_drafts: int = 0
    n_calibrations: int = 0
    n_previews: int = 0


def purge_family(tenant_id: UUID, family: str, *, actor: Actor = SYSTEM) -> Purged:
    """All that was kept of one family; safe to repeat. One transaction: after an error it is as if never begun."""
    which_previews = "coalesce(spec ->> 'family', spec ->> 'name') = %(family)s"
    with tenant_scope(tenant_id):
        purged = _purge(tenant_id, [family], which_previews, family=family)
        _note(tenant_id, actor, purged, {"family": family})
    return purged


def purge_tenant(tenant_id: UUID, *, actor: Actor = SYSTEM) -> Purged:
    """All families that a tenant has when it begins, in one transaction."""
    with tenant_scope(tenant_id):
        rows = [
            model.objects.filter(tenant_id=tenant_id).values_list("family", flat=True) for model in (FamilyKey, Scope)
        ]
        purged = _purge(tenant_id, sorted(set(rows[0]) | set(rows[1])), "true")
        _note(tenant_id, actor, purged, {})
    return purged


def _note(tenant_id: UUID, actor: Actor, purged: Purged, data: dict[str, Any]) -> None:
    if purged != Purged():
        set_tenant(tenant_id)  # the scope that ended put back the token from before, which may be minutes old
        audit.note(tenant_id, actor=actor, action="drafts.purged", data=data | asdict(purged))


def delete_draft(tenant_id: UUID, draft_id: UUID, *, actor: Actor = SYSTEM) -> int:
    """A draft and every draft that began as it; sources that are left without drafts go too. Returns how many drafts
    went, 0 where there is none with this id."""
    with tenant_scope(tenant_id):
        source_ids = _delete(tenant_id, "draft", "id = %(id)s OR root_id = %(id)s", "source_id", id=draft_id)
        empty = (
            "id = ANY(%(sources)s) AND NOT EXISTS (SELECT FROM drafts_draft d"
            " WHERE d.tenant_id = %(tenant)s AND d.source_id = drafts_source.id)"
        )
        _delete(tenant_id, "source", empty, sources=source_ids)
        if source_ids:
            target = encode_id(Prefix.DRAFT, draft_id)
            audit.note(
                tenant_id, actor=actor, action="draft.deleted", target=target, data={"n_drafts": len(source_ids)}
            )
    return len(source_ids)


def _purge(tenant_id: UUID, families: list[str], which_previews: str, **values: Any) -> Purged:
    """Keys go first: an admission that waits for one finds its family gone."""
    with tenant_scope(tenant_id):
        n_keys = _delete_keys(tenant_id, families)
        scopes = _delete(tenant_id, "scope", "family = ANY(%(families)s)", families=families)
        below = "scope_id = ANY(%(scopes)s)"
        n_sources, n_drafts = _delete_sources(tenant_id, scopes)
        return Purged(
            n_keys=n_keys,
            n_scopes=len(scopes),
            n_sources=n_sources,
            n_drafts=n_drafts,
            n_label_drafts=len(_delete(tenant_id, "labeldraft", below, scopes=scopes)),
            n_calibrations=len(_delete(tenant_id, "calibration", below, scopes=scopes)),
            n_previews=len(_delete(tenant_id, "preview", which_previews, **values)),
        )


def _delete_keys(tenant_id: UUID, families: list[str]) -> int:
    """Delete keys and return how many. Afterwards none of these families can have another before this transaction
    ends."""
    waiting, n_keys = list(families), 0
    while waiting:
        held = [FamilyKey(tenant_id=tenant_id, family=family, sealed=b"") for family in waiting]
        FamilyKey.objects.bulk_create(held, ignore_conflicts=True)
        which = "family = ANY(%(families)s) AND (sealed = '') = %(is_ours)s"
        gone = _delete(tenant_id, "familykey", which, "family", families=waiting, is_ours=False)
        ours = _delete(tenant_id, "familykey", which, "family", families=waiting, is_ours=True)
        n_keys += len(gone)
        waiting = sorted({*waiting} - {*gone, *ours})  # another purge took it between the statements
    return n_keys


def _delete_sources(tenant_id: UUID, scopes: list[UUID]) -> tuple[int, int]:
    """(sources, drafts) that went."""
    n_sources = n_drafts = 0
    while ids := _ids_of_sources(tenant_id, scopes):
        set_tenant(tenant_id)  # a token lives for minutes, and there may be a million drafts
        n_drafts += len(_delete(tenant_id, "draft", "source_id = ANY(%(ids)s)", ids=ids))
        n_sources += len(_delete(tenant_id, "source", "id = ANY(%(ids)s)", ids=ids))
    return n_sources, n_drafts


def _ids_of_sources(tenant_id: UUID, scopes: list[UUID]) -> list[UUID]:
    rows = Source.objects.filter(tenant_id=tenant_id, scope_id__in=scopes)
    return list(rows.values_list("id", flat=True)[:BATCH])


def _delete(tenant_id: UUID, table: str, which: str, returned: str = "id", **values: Any) -> list[Any]:
    """Rows of the tenant that go, each by one column. Not Django's delete(), which reads the rows first."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"DELETE FROM drafts_{table} WHERE tenant_id = %(tenant)s AND ({which}) RETURNING {returned}",
            values | {"tenant": tenant_id},
        )
        return [value for (value,) in cursor.fetchall()]
