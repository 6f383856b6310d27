"""The bill by compile and by deployment, as the page shows it: names, links, shares, and steps inside."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django.urls import reverse

from backend.compiles.models import Compile
from backend.console.money.periods import Month
from backend.domain.ids import Prefix, encode_id
from backend.serving.models import Deployment
from backend.usage.bill_groups import BillGroup, GroupKind, groups_of, period_txs, share_of
from backend.usage.reports import Bill, BillLine, LineKind

SHOWN_GROUPS = 40
SHOWN_PARTS = 40  # of one group
TITLES = {GroupKind.COMPILE: "Compile", GroupKind.DEPLOYMENT: "Deployment", GroupKind.OTHER: "Other"}
OF_NEITHER = "Outside of compiles and deployments"
_NONE = "–"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownGroup:
    """`href` is "" where the compile or the deployment is gone, or where it is neither."""

    group: BillGroup
    title: str
    name: str
    public_id: str
    href: str
    share: float

    @property
    def parts(self) -> Sequence[object]:
        return self.group.parts[:SHOWN_PARTS]

    @property
    def n_more_parts(self) -> int:
        return max(0, len(self.group.parts) - SHOWN_PARTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedBill:
    """The groups that are shown, and the rows that bring them to the bill's total, which they sum to exactly."""

    groups: Sequence[ShownGroup]
    n_more: int
    more_microusd: int
    sum_microusd: int
    credits: Sequence[BillLine]
    total_microusd: int


def grouped_bill(tenant_id: UUID, shown: Month, bill: Bill) -> GroupedBill:
    groups = groups_of(tenant_id, period_txs(tenant_id, shown.start, shown.end))
    first = groups[:SHOWN_GROUPS]
    names = _names_now(tenant_id, first)
    credits = [line for line in bill.lines if line.kind is LineKind.CREDIT_APPLIED]
    total = sum(group.subtotal_microusd for group in groups)
    return GroupedBill(
        groups=[_show(group, groups, names) for group in first],
        n_more=len(groups) - len(first),
        more_microusd=sum(group.subtotal_microusd for group in groups[SHOWN_GROUPS:]),
        sum_microusd=total,
        credits=credits,
        total_microusd=total + sum(line.amount_microusd for line in credits),
    )


def _show(group: BillGroup, groups: Sequence[BillGroup], names: dict[UUID, str]) -> ShownGroup:
    public_id = href = ""
    name = OF_NEITHER
    if group.id is not None:
        is_compile = group.kind is GroupKind.COMPILE
        public_id = encode_id(Prefix.COMPILE if is_compile else Prefix.DEPLOYMENT, group.id)
        name = group.name or names.get(group.id) or public_id
        if group.id in names:
            href = reverse("console:compile" if is_compile else "console:deployment", args=[public_id])
    return ShownGroup(
        group=group,
        title=TITLES[group.kind],
        name=name,
        public_id=public_id,
        href=href,
        share=share_of(group, groups),
    )


def _names_now(tenant_id: UUID, groups: Sequence[BillGroup]) -> dict[UUID, str]:
    """Return the names of what is there still, by id."""
    names: dict[UUID, str] = {}
    for kind, model in ((GroupKind.COMPILE, Compile), (GroupKind.DEPLOYMENT, Deployment)):
        ids = [group.id for group in groups if group.kind is kind]
        names |= dict(model.objects.of_tenant(tenant_id).filter(id__in=ids).values_list("id", "name")) if ids else {}
    return names
