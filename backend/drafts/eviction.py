"""The size budget: when a tenant keeps more than it may, what is expected to save least per byte goes.

A draft's expected saving is how likely it is to be accepted once more, times the tokens that would spare, halved every
`HALF_LIFE_DAYS`. How likely: a source's drafts are accepted at the posterior mean of their verdicts under a
Beta(1, 2) prior, and a draft's own verdicts move it from its source's mean with the weight of two; so a draft that is
shown in vain sinks, and with it a source. A label draft has no verdicts and is taken at the prior. Quarantined and
retired drafts, and sources without drafts, save nothing and go first.
"""

from uuid import UUID

from django.conf import settings
from django.db import connection

from backend.tenants.isolation import tenant_scope

PRIOR_ACCEPTED, PRIOR_REFUSED = 1.0, 2.0
OWN_WEIGHT = 2.0  # how many verdicts on a draft weigh as much as what its source says of it
HALF_LIFE_DAYS = 30.0
KEPT_SHARE = 0.9  # of the budget, so that the next admissions do not evict again
BATCH = 2_000

_HELD = """
    SELECT coalesce((SELECT sum(n_bytes) FROM drafts_draft WHERE tenant_id = %(tenant)s), 0)
         + coalesce((SELECT sum(n_bytes) FROM drafts_source WHERE tenant_id = %(tenant)s), 0)
         + coalesce((SELECT sum(n_bytes) FROM drafts_labeldraft WHERE tenant_id = %(tenant)s), 0)
"""

# A source's bytes go with the last of its drafts: `last` is the one that is worth most.
_VICTIMS = """
    WITH mean AS (
        SELECT id, n_bytes, (n_accepted + %(accepted)s::float8) / (n_shown + %(accepted)s + %(refused)s) AS p
        FROM drafts_source WHERE tenant_id = %(tenant)s
    ), worth AS (
        SELECT d.id, s.id AS source_id, d.n_bytes, s.n_bytes AS source_bytes,
            CASE WHEN d.state = 'live' THEN
                (d.n_accepted + %(own)s::float8 * s.p) / (d.n_shown + %(own)s) * d.n_tokens
                * power(0.5::float8, extract(epoch FROM now() - d.created_at)::float8 / %(half_life_s)s) ELSE 0 END
            / (d.n_bytes + s.n_bytes::float / count(*) OVER (PARTITION BY s.id)) AS density
        FROM drafts_draft d JOIN mean s ON s.id = d.source_id WHERE d.tenant_id = %(tenant)s
    ), things AS (
        SELECT 'draft' AS kind, id, source_id, density, n_bytes + CASE WHEN
            row_number() OVER (PARTITION BY source_id ORDER BY density DESC, id DESC) = 1
            THEN source_bytes ELSE 0 END AS n_bytes
        FROM worth
        UNION ALL
        SELECT 'label', id, NULL, %(accepted)s::float8 / (%(accepted)s + %(refused)s) * output_tokens
            * power(0.5::float8, extract(epoch FROM now() - created_at)::float8 / %(half_life_s)s) / n_bytes, n_bytes
        FROM drafts_labeldraft WHERE tenant_id = %(tenant)s
        UNION ALL
        SELECT 'source', id, id, 0, n_bytes FROM mean m
        WHERE NOT EXISTS (SELECT FROM drafts_draft d WHERE d.tenant_id = %(tenant)s AND d.source_id = m.id)
    ), line AS (
        SELECT *, sum(n_bytes) OVER (ORDER BY density, id ROWS UNBOUNDED PRECEDING) - n_bytes AS before,
            sum(n_bytes) OVER () AS held
        FROM things
    )
    SELECT kind, id, source_id FROM line WHERE held > %(budget)s AND before < held - %(mark)s ORDER BY before
"""

_DELETIONS = (
    "DELETE FROM drafts_draft WHERE tenant_id = %(tenant)s AND id = ANY(%(draft)s)",
    "DELETE FROM drafts_labeldraft WHERE tenant_id = %(tenant)s AND id = ANY(%(label)s)",
    "DELETE FROM drafts_source s WHERE tenant_id = %(tenant)s AND id = ANY(%(source)s) AND NOT EXISTS"
    " (SELECT FROM drafts_draft d WHERE d.tenant_id = %(tenant)s AND d.source_id = s.id)",
)


def held_bytes(tenant_id: UUID) -> int:
    """Return the bytes that the tenant's drafts, sources and label drafts take; inside the tenant's scope. Three scans
    of narrow index entries, since a counter would make all of a tenant's compiles wait for one row."""
    with connection.cursor() as cursor:
        cursor.execute(_HELD, {"tenant": tenant_id})
        return int(cursor.fetchone()[0])


def shrink(tenant_id: UUID) -> int:
    """Bring the tenant to 90 % of its budget if it is above it; returns how many drafts, label drafts and sources went.
    To be called after an admission has committed: each batch is a transaction of its own, and of two callers at once
    one does the work."""
    n_gone, victims = 0, _victims(tenant_id)
    for at in range(0, len(victims), BATCH):
        n_gone += _delete(tenant_id, victims[at : at + BATCH])
    return n_gone


def _victims(tenant_id: UUID) -> list[tuple[str, UUID, UUID | None]]:
    """(kind, id, source) of what has to go, what is worth least first. What is held is summed again in the statement
    that chooses: between two statements another process may have evicted."""
    budget = settings.KOLM_DRAFT_BYTES_PER_TENANT
    with tenant_scope(tenant_id), connection.cursor() as cursor:
        if held_bytes(tenant_id) <= budget:
            return []
        values = {
            "tenant": tenant_id,
            "accepted": PRIOR_ACCEPTED,
            "refused": PRIOR_REFUSED,
            "own": OWN_WEIGHT,
            "half_life_s": HALF_LIFE_DAYS * 86_400,
            "budget": budget,
            "mark": int(KEPT_SHARE * budget),
        }
        cursor.execute(_VICTIMS, values)
        return list(cursor.fetchall())


def _delete(tenant_id: UUID, victims: list[tuple[str, UUID, UUID | None]]) -> int:
    """Nothing is deleted while another process deletes for this tenant: what it leaves is counted again after the next
    admission."""
    ids = {
        "tenant": tenant_id,
        "draft": [id for kind, id, _ in victims if kind == "draft"],
        "label": [id for kind, id, _ in victims if kind == "label"],
        "source": sorted({source for _, _, source in victims if source is not None}),
    }
    with tenant_scope(tenant_id), connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))", [f"drafts.shrink/{tenant_id}"])
        if not cursor.fetchone()[0]:
            return 0
        n_gone = 0
        for deletion in _DELETIONS:
            cursor.execute(deletion, ids)
            n_gone += cursor.rowcount
        return n_gone
