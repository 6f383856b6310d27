"""The sources whose slices have a name or a label in common with a new slice, however far their hints lie apart: names
are stored as MACs under the family's key, and looked up as such."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db import connection

from backend.domain.drafts.vocabulary import DraftState, Kinship
from backend.drafts.models import Scope, Source

# what a look-up reads of a source; prompts are long, and sealed
SOURCE_FIELDS = (
    "id",
    "n_shown",
    "n_accepted",
    "missing_ppm",
    "prompt_mac",
    "slice_mac",
    "label_mac",
    "price_version",
)

# read from the end of an index, so that a label of a thousand sources costs what one of four does
_NEWEST = """
    SELECT wanted.mac, newest.id
    FROM unnest(%(macs)s::bytea[]) AS wanted (mac) CROSS JOIN LATERAL (
        SELECT s.id FROM drafts_source s
        WHERE s.tenant_id = %(tenant)s AND s.scope_id = %(scope)s AND s.{column} = wanted.mac AND EXISTS (
            SELECT FROM drafts_draft d WHERE d.tenant_id = %(tenant)s AND d.source_id = s.id
                AND d.state = %(state)s AND d.expires_at > now()
        )
        ORDER BY s.id DESC LIMIT %(n)s
    ) newest
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceMacs:
    """The names of a slice as rows know them; None for one that it does not have."""

    name: bytes | None
    label: bytes | None
    labels: frozenset[bytes | None]

    def kinship(self, source: Source) -> Kinship:
        """A source whose label is another of the spec's is no relative, whatever it is called."""
        label = None if source.label_mac is None else bytes(source.label_mac)
        if label is not None and label != self.label and label in self.labels:
            return Kinship.OTHER
        if self.name is not None and source.slice_mac is not None and bytes(source.slice_mac) == self.name:
            return Kinship.SLICE
        return Kinship.LABEL if label is not None and label == self.label else Kinship.OTHER


def newest_relatives(tenant_id: UUID, scope: Scope, slices: Sequence[SliceMacs], n: int) -> list[list[Source]]:
    """Return for each slice the `n` newest sources of its name that have live drafts, and the `n` newest of its label.
    Three queries, whatever the number of slices. Inside the tenant's scope."""
    by_name = _newest(tenant_id, scope, "slice_mac", {each.name for each in slices}, n)
    by_label = _newest(tenant_id, scope, "label_mac", {each.label for each in slices}, n)
    ids = {id for newest in (*by_name.values(), *by_label.values()) for id in newest}
    rows = Source.objects.filter(tenant_id=tenant_id, scope_id=scope.id, id__in=ids) if ids else Source.objects.none()
    sources = {row.id: row for row in rows.only(*SOURCE_FIELDS, "embedding")}
    wanted = [dict.fromkeys((*by_name.get(each.name, ()), *by_label.get(each.label, ()))) for each in slices]
    return [[sources[id] for id in ids if id in sources] for ids in wanted]


def _newest(
    tenant_id: UUID, scope: Scope, column: str, macs: Collection[bytes | None], n: int
) -> dict[bytes | None, list[UUID]]:
    """The ids of the `n` newest sources of each MAC, newest first."""
    known = [mac for mac in macs if mac is not None]
    newest: dict[bytes | None, list[UUID]] = {}
    if not known:
        return newest
    values = {"macs": known, "tenant": tenant_id, "scope": scope.id, "state": DraftState.LIVE.value, "n": n}
    with connection.cursor() as cursor:
        cursor.execute(_NEWEST.format(column=column), values)
        for mac, id in cursor.fetchall():
            newest.setdefault(bytes(mac), []).append(id)
    return {mac: sorted(ids, reverse=True) for mac, ids in newest.items()}
