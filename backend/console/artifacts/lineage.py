"""The lineage of an artifact: the versions of its name, beside each other, with what changed between them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Count, Max

from backend.artifacts.models import Artifact
from backend.compiles.models import Compile

SHOWN_VERSIONS = 30  # the newest; a name may have thousands


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One version with its differences to the one before it; None for the first, and where a cost is not known."""

    artifact: Artifact
    compile: Compile | None
    k_delta_ppm: int | None
    size_delta_bytes: int | None
    cost_delta_microusd: int | None

    @property
    def cost_microusd(self) -> int | None:
        return None if self.compile is None else self.compile.spent_microusd

    @property
    def is_revoked(self) -> bool:
        return getattr(self.artifact, "revoked_at", None) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedArtifacts:
    """A name with its newest versions, newest first, and how many there are in all."""

    name: str
    n_versions: int
    versions: Sequence[Artifact]

    @property
    def latest(self) -> Artifact:
        return self.versions[0]

    @property
    def k_scores(self) -> list[float]:
        """Oldest first, as a line is read."""
        return [row.k_score_ppm / 1e6 for row in reversed(self.versions)]


def names_of(tenant_id: UUID, *, search: str = "") -> Any:
    """A query of names with their counts, the most lately published first."""
    rows = Artifact.objects.of_tenant(tenant_id)
    if search:
        rows = rows.filter(name__icontains=search)
    return rows.values("name").annotate(n=Count("id"), newest=Max("created_at")).order_by("-newest", "name")


def with_versions(tenant_id: UUID, counted: Sequence[dict[str, Any]]) -> list[NamedArtifacts]:
    """The names of one page with their newest versions: one query for all of them."""
    names = [row["name"] for row in counted]
    newest = {row["name"]: row["n"] for row in counted}
    versions: dict[str, list[Artifact]] = {name: [] for name in names}
    rows = Artifact.objects.of_tenant(tenant_id).filter(name__in=names).order_by("-version")
    for row in rows.defer("manifest", "evaluation")[: SHOWN_VERSIONS * max(1, len(names))]:
        versions[row.name].append(row)
    return [
        NamedArtifacts(name=name, n_versions=newest[name], versions=versions[name][:SHOWN_VERSIONS])
        for name in names
        if versions[name]
    ]


def versions_of(tenant_id: UUID, name: str) -> list[Version]:
    """The newest versions of a name, newest first."""
    rows = list(
        Artifact.objects.of_tenant(tenant_id)
        .filter(name=name)
        .order_by("-version")
        .defer("manifest", "evaluation")[: SHOWN_VERSIONS + 1]
    )
    compiles = Compile.objects.of_tenant(tenant_id).in_bulk([row.compile_id for row in rows])
    before: list[Artifact | None] = [*rows[1:], None]
    pairs = zip(rows, before, strict=True)
    return [_version(row, older, compiles) for row, older in pairs][:SHOWN_VERSIONS]


def _version(row: Artifact, older: Artifact | None, compiles: dict[Any, Compile]) -> Version:
    own = compiles.get(row.compile_id)
    if older is None:
        return Version(artifact=row, compile=own, k_delta_ppm=None, size_delta_bytes=None, cost_delta_microusd=None)
    was = compiles.get(older.compile_id)
    return Version(
        artifact=row,
        compile=own,
        k_delta_ppm=row.k_score_ppm - older.k_score_ppm,
        size_delta_bytes=row.size_bytes - older.size_bytes,
        cost_delta_microusd=None if own is None or was is None else own.spent_microusd - was.spent_microusd,
    )
