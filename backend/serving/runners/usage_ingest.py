"""The usage that servers report, booked once: facts and charges out of the allowances, the deployments' counters, and
with the bookings the budgets.

A row is believed as far as its grant goes: who is billed, for which artifact and by which key stand in the grant, which
this installation signed. A row that comes again (its answer was lost) finds its facts and changes nothing.
"""

import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.conf import settings
from django.utils import timezone

from backend.domain.errors import NotFound
from backend.domain.ids import Prefix, decode_id
from backend.domain.money.pricing import price_book
from backend.domain.serving.deployments import N_BUCKETS, bucket_of, token_costs
from backend.domain.serving.wire import BadGrant, Grant, UsageBatch, UsageRow, grant_key, read_grant
from backend.serving import deployments
from backend.serving.models import Deployment, DeploymentHour
from backend.serving.runners import servers
from backend.tenants.isolation import tenant_scope
from backend.usage import allowances
from backend.usage.allowances import Used
from backend.usage.ledger import Fact
from backend.usage.models import Account, UsageFact
from backend.usage.subjects import NOBODY

logger = logging.getLogger("kolm.serving")

MAX_ROWS = 1_000
MAX_COUNT = 10_000_000  # tokens of one row
MAX_US = 24 * 3600 * 1_000_000
_ENDS = ("", "stop", "length", "rule", "canceled", "failed")
_COUNTS = ("prompt_tokens", "cached_tokens", "completion_tokens", "drafted_tokens", "accepted_tokens")


class _Refused(Exception):
    """A row that cannot be booked; its text is the server's to read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A row with what its grant says."""

    usage: UsageRow
    tenant_id: UUID
    artifact_id: UUID
    deployment_id: UUID | None
    api_key_id: UUID | None
    allowance_id: UUID | None
    worst_microusd: int
    n_answers: int

    @property
    def is_last(self) -> bool:
        return self.usage.finish_reason != ""

    def source_key(self, kind: str) -> str:
        return f"serving:{self.usage.key}:{kind}"


@dataclass(slots=True, kw_only=True)
class Ingested:
    n_booked: int = 0
    n_known: int = 0
    refused: list[dict[str, Any]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {"booked": self.n_booked, "known": self.n_known, "refused": self.refused}


def ingest(batch: UsageBatch) -> Ingested:
    """Book a batch, each tenant's rows in a transaction of their own."""
    taken, by_tenant = Ingested(), defaultdict(list)
    key = grant_key(settings.KOLM_RUNNER_TOKEN)
    for index, raw in enumerate(batch.rows):
        try:
            row = _read(raw, key)
        except _Refused as refused:
            taken.refused.append({"row": index, "detail": str(refused)})
            continue
        by_tenant[row.tenant_id].append((index, row))
    about = _server_description(batch.server)
    for tenant_id, rows in by_tenant.items():
        with tenant_scope(tenant_id):
            if not Account.objects.of_tenant(tenant_id).exists():
                taken.refused += [{"row": index, "detail": "there is no such tenant any more"} for index, _ in rows]
                continue
            n_new = _book(tenant_id, [row for _, row in rows], about)
        taken.n_booked += n_new
        taken.n_known += len(rows) - n_new
    if taken.refused:
        logger.error("%s of %s usage rows refused", len(taken.refused), len(batch.rows))
    return taken


def _read(raw: Any, key: bytes) -> _Row:
    """Raises _Refused."""
    try:
        usage = UsageRow.from_json(raw)
        grant = read_grant(usage.grant, key, now=None)
    except BadGrant as bad:
        raise _Refused(bad.message) from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _Refused(f"not a usage row: {error}"[:300]) from None
    _check(usage, grant)
    _, _, claim = grant.request.partition(":")
    allowance, _, limits = claim.partition(":")
    worst, _, n_answers = limits.partition(":")
    try:
        return _Row(
            usage=usage,
            tenant_id=UUID(hex=grant.tenant),
            artifact_id=decode_id(Prefix.ARTIFACT, grant.artifact),
            deployment_id=decode_id(Prefix.DEPLOYMENT, grant.deployment) if grant.deployment else None,
            api_key_id=decode_id(Prefix.API_KEY, grant.api_key) if grant.api_key else None,
            allowance_id=UUID(hex=allowance) if allowance else None,
            worst_microusd=int(worst or 0),
            n_answers=int(n_answers or 1),
        )
    except (ValueError, NotFound):
        raise _Refused("the grant names what cannot be") from None


def _check(usage: UsageRow, grant: Grant) -> None:
    counts = [getattr(usage, name) for name in _COUNTS]
    if not all(type(n) is int and 0 <= n <= MAX_COUNT for n in counts):
        raise _Refused("its tokens are counts of up to ten millions")
    if not all(type(us) is int and 0 <= us <= MAX_US for us in (usage.first_token_us, usage.total_us)):
        raise _Refused("its times are microseconds of up to a day")
    if type(usage.part) is not int or not 0 <= usage.part < 10**6 or usage.finish_reason not in _ENDS:
        raise _Refused("part and finish_reason are not what they can be")
    if usage.cached_tokens > usage.prompt_tokens or usage.accepted_tokens > usage.drafted_tokens:
        raise _Refused("a part of its tokens is more than the whole")
    if usage.model != grant.sha256:
        raise _Refused("its model is not the one of its grant")
    if usage.finish_reason == "rule" and any(counts):
        raise _Refused("a rule's answer has no tokens")


def _book(tenant_id: UUID, rows: Sequence[_Row], about: dict[str, Any] | None) -> int:
    """Returns how many rows were new."""
    rows = list({row.usage.key: row for row in rows}.values())
    used, amounts = [], {}
    subjects = deployments.subjects_of(tenant_id, [row.deployment_id for row in rows])
    for row in rows:
        facts = _facts(row)
        amount = sum(fact.amount_microusd for fact in facts)
        amounts[row.usage.key] = amount
        used.append(
            Used(
                allowance_id=row.allowance_id,
                api_key_id=row.api_key_id,
                facts=facts,
                fulfils_microusd=_unused_authorization(tenant_id, row, amount),
                subject=subjects.get(row.deployment_id, NOBODY),
            )
        )
    fresh = allowances.capture(tenant_id, used)
    new = [row for row in rows if row.source_key("completion") in fresh]
    _count(tenant_id, new, amounts, about)
    return len(new)


def _facts(row: _Row) -> tuple[Fact, ...]:
    book, usage = price_book(timezone.now()), row.usage
    costs = token_costs(
        book, prompt=usage.prompt_tokens, cached=usage.cached_tokens, completion=usage.completion_tokens
    )
    return tuple(
        Fact(
            sku=cost.price.sku,
            quantity=cost.quantity,
            unit=cost.price.unit,
            amount_microusd=cost.amount_microusd,
            price_version=book.version,
            source_key=row.source_key(cost.kind),
        )
        for cost in costs
    )


def _unused_authorization(tenant_id: UUID, row: _Row, amount_microusd: int) -> int:
    """The part of what was authorized that the request turned out not to need: known with its last row. Of several
    answers each is reported on its own, and gives back of its share."""
    if not row.is_last:
        return 0
    if row.n_answers > 1:
        return max(0, -(-row.worst_microusd // row.n_answers) - amount_microusd)
    before = 0
    if row.usage.part:
        head = row.usage.key.rpartition(":")[0]
        keys = [f"serving:{head}:{part}:{kind}" for part in range(row.usage.part) for kind in _KINDS]
        charges = UsageFact.objects.of_tenant(tenant_id).filter(source_key__in=keys, billing="charge")
        before = sum(charges.values_list("amount_microusd", flat=True))
    return max(0, row.worst_microusd - before - amount_microusd)


_KINDS = ("prompt", "cached", "completion")


def _count(tenant_id: UUID, rows: Sequence[_Row], amounts: dict[str, int], about: dict[str, Any] | None) -> None:
    """Add to the counters of deployments that are still there. The account's lock, which the bookings took, keeps
    other batches of this tenant away."""
    known = set(Deployment.objects.of_tenant(tenant_id).values_list("id", flat=True))
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    places: dict[tuple[UUID, UUID], list[_Row]] = defaultdict(list)
    for row in rows:
        if row.deployment_id in known:
            places[row.deployment_id, row.artifact_id].append(row)
    for (deployment_id, artifact_id), of_place in sorted(places.items()):
        counter, _ = DeploymentHour.objects.of_tenant(tenant_id).get_or_create(
            tenant_id=tenant_id, deployment_id=deployment_id, artifact_id=artifact_id, hour=hour
        )
        for row in of_place:
            _add(counter, row, amounts[row.usage.key])
        if about is not None and about not in counter.ran:
            counter.ran = [*counter.ran, about][-8:]
        counter.save()


def _add(counter: DeploymentHour, row: _Row, amount_microusd: int) -> None:
    usage = row.usage
    for name in _COUNTS:
        setattr(counter, name, getattr(counter, name) + getattr(usage, name))
    counter.amount_microusd += amount_microusd
    if not row.is_last:
        return
    counter.n_requests += 1
    counter.n_failed += usage.finish_reason == "failed"
    counter.n_canceled += usage.finish_reason == "canceled"
    counter.n_rule += usage.finish_reason == "rule"
    if usage.first_token_us:
        counter.first_token = _with(counter.first_token, usage.first_token_us)
    if usage.total_us:
        counter.total = _with(counter.total, usage.total_us)


def _with(histogram: list[int], us: int) -> list[int]:
    counts = [*histogram, *([0] * (N_BUCKETS - len(histogram)))]
    counts[bucket_of(us)] += 1
    return counts


def _server_description(public_id: str) -> dict[str, Any] | None:
    try:
        return servers.describe(decode_id(Prefix.SERVER, str(public_id)))
    except NotFound:
        return None
