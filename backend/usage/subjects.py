"""The subject of a use, as bills show it: a compile or a deployment by its name, and cost tags. Both are frozen when
the use is booked: a name that is taken away, or a tag that is changed later, changes no bill.

    a compile       tags of its API key under those of its spec, from its submission on (`Hold`)
    a deployment    tags of the caller's API key under those of the deployment, call by call
    anything else   tags of the API key
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from backend.domain.cost_tags import merge
from backend.tenants.models import ApiKey
from backend.usage.models import Hold

MOST_SUBJECT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """`name` is the compile's or the deployment's; "" where the use belongs to neither."""

    name: str = ""
    deployment_id: UUID | None = None
    tags: Mapping[str, str] = field(default_factory=dict)


NOBODY = Subject()


def subject_of_compile(tenant_id: UUID, compile_id: UUID | None) -> Subject:
    """The subject of what a compile uses, as its hold keeps it."""
    if compile_id is None:
        return NOBODY
    row = Hold.objects.of_tenant(tenant_id).filter(compile_id=compile_id).first()
    return NOBODY if row is None else Subject(name=row.subject, tags=row.tags)


def with_key_tags(tenant_id: UUID, subject: Subject, api_key_id: UUID | None) -> Subject:
    """The subject with the tags of an API key under its own."""
    if api_key_id is None:
        return subject
    return replace(
        subject, tags=merge(under=tags_of_keys(tenant_id, [api_key_id]).get(api_key_id, {}), over=subject.tags)
    )


def tags_of_keys(tenant_id: UUID, api_key_ids: Iterable[UUID | None]) -> dict[UUID, dict[str, str]]:
    """The tags of API keys as they are now."""
    rows = ApiKey.objects.of_tenant(tenant_id).filter(id__in={id for id in api_key_ids if id is not None})
    return dict(rows.values_list("id", "tags"))
