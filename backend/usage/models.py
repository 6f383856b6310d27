"""Money: usage facts at dated prices, the double-entry ledger over them, and each tenant's account.

Facts, transactions, lines, notices and savings are append-only: the database refuses UPDATE and DELETE. `Account`,
`Hold`, `Grant` and `Budget` hold sums of them, written in the same transaction; `manage.py ledger_check` folds the
lines and compares.
"""

from enum import StrEnum

from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from backend.domain.money.ledger import GrantKind, Kind
from backend.tenants.isolation import TenantOwned


class Billing(StrEnum):
    """The one who carries the cost: the customer, or kolm (a repeated call after a crash, a failure of ours)."""

    CHARGE = "charge"
    WASTE = "waste"


class BudgetScope(StrEnum):
    TENANT = "tenant"
    API_KEY = "api_key"


def _choices(enum: type[StrEnum]) -> list[tuple[str, str]]:
    return [(member.value, member.value) for member in enum]


class UsageFact(TenantOwned):
    """One quantity at one dated price. `source_key` is unique per tenant, so a fact that is recorded twice is one
    fact. `tx_id` is the transaction that booked it (null: it cost nothing). `provider_microusd` is what the provider of
    the customer's own teacher key will bill for it, by estimate; kolm bills none of that. `subject` is the name of the
    compile or of the deployment, `tags` the cost tags, both as they were when this was booked."""

    compile_id = models.UUIDField(null=True)
    step = models.CharField(max_length=32, blank=True)
    sku = models.CharField(max_length=200)
    quantity = models.BigIntegerField()
    unit = models.CharField(max_length=32)
    price_version = models.CharField(max_length=64)
    amount_microusd = models.BigIntegerField()
    billing = models.CharField(max_length=8, choices=_choices(Billing))
    is_estimated = models.BooleanField(default=False)
    source_key = models.CharField(max_length=200)
    occurred_at = models.DateTimeField(default=timezone.now)
    meter = models.CharField(max_length=16, blank=True)
    api_key_id = models.UUIDField(null=True)
    provider_microusd = models.BigIntegerField(default=0)
    tx_id = models.UUIDField(null=True)
    deployment_id = models.UUIDField(null=True)
    subject = models.CharField(max_length=100, blank=True, default="", db_default="")
    tags = models.JSONField(default=dict, db_default={})

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant_id", "source_key"], name="usage_fact_once")]
        indexes = [
            models.Index(fields=["tenant_id", "compile_id", "step"], name="usage_by_compile"),
            models.Index(fields=["tenant_id", "occurred_at"], name="usage_by_time"),
            models.Index(fields=["tenant_id", "tx_id"], name="usage_by_tx"),
        ]


class PriceBookRow(models.Model):
    """One sku of one price book, as it was published; append-only. `sha256` is the whole book's."""

    version = models.CharField(max_length=64)
    effective_at = models.DateTimeField()
    sku = models.CharField(max_length=200)
    unit = models.CharField(max_length=32)
    usd_per_unit = models.DecimalField(max_digits=24, decimal_places=15)
    sha256 = models.CharField(max_length=64)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["version", "sku"], name="price_once")]


class AccountDefault(models.Model):
    """The state that a new tenant's account begins with: one row, written when the installation is migrated."""

    plan = models.CharField(max_length=32)
    cap_microusd = models.BigIntegerField(null=True)


class Account(TenantOwned):
    """The account of a tenant: what it may spend and has spent. `spent` is what this period's use comes to beyond
    grants, `held` is set aside for compiles under way, `credit` what is left of grants; a cap of null is none."""

    plan = models.CharField(max_length=32)
    cap_microusd = models.BigIntegerField(null=True)
    held_microusd = models.BigIntegerField(default=0)
    spent_microusd = models.BigIntegerField(default=0)
    credit_microusd = models.BigIntegerField(default=0)
    period_start = models.DateTimeField()
    period_end = models.DateTimeField()
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant_id"], name="account_once"),
            models.CheckConstraint(condition=Q(held_microusd__gte=0), name="account_held_not_negative"),
            models.CheckConstraint(condition=Q(credit_microusd__gte=0), name="account_credit_not_negative"),
            models.CheckConstraint(
                condition=Q(cap_microusd=None)
                | Q(cap_microusd__gte=F("held_microusd") + F("spent_microusd") - F("credit_microusd")),
                name="account_within_cap",
            ),
        ]


class BillingDue(models.Model):
    """The tenants there are, and when an account next wants attention. Ids and times: upkeep and the check serve all
    tenants."""

    tenant_id = models.UUIDField(primary_key=True)
    due_at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["due_at"], name="billing_due")]


class LedgerTx(TenantOwned):
    """One transaction of the ledger. `key` names what it books: booking it again changes nothing. `period_start` is
    the tenant's billing period that it fell into; `is_use` says that its lines count as spent (an invoice's do not)."""

    key = models.CharField(max_length=200)
    kind = models.CharField(max_length=20, choices=_choices(Kind))
    period_start = models.DateTimeField()
    booked_at = models.DateTimeField()
    created_at = models.DateTimeField(default=timezone.now)
    actor = models.CharField(max_length=100, blank=True)
    reason = models.CharField(max_length=64, blank=True)
    compile_id = models.UUIDField(null=True)
    api_key_id = models.UUIDField(null=True)
    allowance_id = models.UUIDField(null=True)
    reverses = models.UUIDField(null=True)
    is_use = models.BooleanField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant_id", "key"], name="ledger_tx_once"),
            models.UniqueConstraint(
                fields=["tenant_id", "reverses"], condition=Q(reverses__isnull=False), name="ledger_reversed_once"
            ),
        ]
        indexes = [
            models.Index(fields=["tenant_id", "period_start", "kind"], name="ledger_tx_by_period"),
            models.Index(fields=["tenant_id", "compile_id"], name="ledger_tx_by_compile"),
            models.Index(
                fields=["tenant_id", "allowance_id"],
                condition=Q(allowance_id__isnull=False),
                name="ledger_tx_by_allowance",
            ),
        ]


class LedgerLine(TenantOwned):
    """One line; those of a transaction are written in one statement and sum to 0, which a trigger sees to."""

    tx = models.ForeignKey(LedgerTx, on_delete=models.PROTECT, related_name="lines", db_index=False)
    account = models.CharField(max_length=40)
    amount_microusd = models.BigIntegerField()
    grant_id = models.UUIDField(null=True)

    class Meta:
        constraints = [models.CheckConstraint(condition=~Q(amount_microusd=0), name="ledger_line_not_zero")]
        indexes = [
            models.Index(fields=["tenant_id", "tx"], name="ledger_line_by_tx"),
            models.Index(fields=["tenant_id", "account"], name="ledger_line_by_account"),
        ]


class Hold(TenantOwned):
    """The money set aside for one compile. `settled` of `amount` has become a charge; a closed one has nothing left.
    `subject` and `tags` are what its bookings carry: the compile's name and the tags of its spec and its API key."""

    compile_id = models.UUIDField()
    api_key_id = models.UUIDField(null=True)
    amount_microusd = models.BigIntegerField()
    settled_microusd = models.BigIntegerField(default=0)
    n_holds = models.IntegerField(default=1)
    is_open = models.BooleanField(default=True)
    subject = models.CharField(max_length=100, blank=True, default="", db_default="")
    tags = models.JSONField(default=dict, db_default={})
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant_id", "compile_id"], name="hold_once"),
            models.CheckConstraint(
                condition=Q(settled_microusd__gte=0, amount_microusd__gte=F("settled_microusd")),
                name="hold_settled_within",
            ),
        ]


class Allowance(TenantOwned):
    """Money set aside for an API key's requests to be served, before it is known what they use. The worst case of a
    request is authorized out of it (`promised`), its usage is captured from it (`settled`); once nothing is authorized,
    or at `expires_at`, what is left goes back. New authorizations are made until `takes_until`."""

    api_key_id = models.UUIDField(null=True)
    amount_microusd = models.BigIntegerField()
    settled_microusd = models.BigIntegerField(default=0)
    promised_microusd = models.BigIntegerField(default=0)
    is_open = models.BooleanField(default=True)
    takes_until = models.DateTimeField()
    expires_at = models.DateTimeField()
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(
                    settled_microusd__gte=0, promised_microusd__gte=0, amount_microusd__gte=F("settled_microusd")
                ),
                name="allowance_settled_within",
            ),
        ]
        indexes = [
            models.Index(
                fields=["tenant_id", "api_key_id", "takes_until"], condition=Q(is_open=True), name="allowance_open"
            )
        ]


class Grant(TenantOwned):
    """Credit that was given or bought. Used up by (priority, expires_at, id); what is left at its end is breakage."""

    kind = models.CharField(max_length=8, choices=_choices(GrantKind))
    priority = models.SmallIntegerField()
    amount_microusd = models.BigIntegerField()
    remaining_microusd = models.BigIntegerField()
    expires_at = models.DateTimeField(null=True)
    source_key = models.CharField(max_length=200)
    actor = models.CharField(max_length=100, blank=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant_id", "source_key"], name="grant_once"),
            models.CheckConstraint(
                condition=Q(remaining_microusd__gte=0, amount_microusd__gte=F("remaining_microusd")),
                name="grant_remaining_within",
            ),
        ]


class Budget(TenantOwned):
    """A monthly cap of the customer's own, for the tenant or for one API key. With `is_hard` nothing is started that
    would not fit; without, it only notifies."""

    scope = models.CharField(max_length=8, choices=_choices(BudgetScope))
    api_key_id = models.UUIDField(null=True)
    cap_microusd = models.BigIntegerField()
    is_hard = models.BooleanField(default=True)
    held_microusd = models.BigIntegerField(default=0)
    spent_microusd = models.BigIntegerField(default=0)
    period_start = models.DateTimeField()
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant_id", "scope"], condition=Q(api_key_id__isnull=True), name="budget_of_tenant_once"
            ),
            models.UniqueConstraint(
                fields=["tenant_id", "api_key_id"], condition=Q(api_key_id__isnull=False), name="budget_of_key_once"
            ),
            models.CheckConstraint(condition=Q(held_microusd__gte=0), name="budget_held_not_negative"),
            models.CheckConstraint(condition=Q(cap_microusd__gt=0), name="budget_cap_positive"),
        ]


class BudgetNotice(TenantOwned):
    """A notice that a threshold was passed: one a budget, period and threshold."""

    budget_id = models.UUIDField()
    period_start = models.DateTimeField()
    percent = models.SmallIntegerField()
    spent_microusd = models.BigIntegerField()
    cap_microusd = models.BigIntegerField()
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant_id", "budget_id", "period_start", "percent"], name="budget_notice_once"
            )
        ]


class DraftSaving(TenantOwned):
    """The worth of drafts to one slice (or to the labels) of a compile: output that was not bought, what verifying,
    looking up and auditing cost, and what remains. `source_key` is unique per tenant."""

    compile_id = models.UUIDField()
    step = models.CharField(max_length=32)
    source_key = models.CharField(max_length=200)
    avoided_microusd = models.BigIntegerField()
    verification_microusd = models.BigIntegerField()
    net_microusd = models.BigIntegerField()
    price_version = models.CharField(max_length=64, blank=True)
    occurred_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant_id", "source_key"], name="draft_saving_once")]
        indexes = [
            models.Index(fields=["tenant_id", "compile_id"], name="draft_saving_by_compile"),
            models.Index(fields=["tenant_id", "occurred_at"], name="draft_saving_by_time"),
        ]
