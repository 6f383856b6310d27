"""Every address, every method, with ids of another tenant: 404, and nothing of the other tenant in any answer.

The rows of the other tenant are made by walking the models, so that a table that is added is swept too.
"""

import json
from typing import Any
from uuid import UUID

import pytest
from django.apps import apps
from django.db import models
from django.test import Client
from django.utils import timezone

from backend.domain.ids import Prefix, encode_id
from backend.rest.new_ids import new_uuid7
from backend.tenants.isolation import TenantOwned, tenant_scope
from backend.tenants.models import Tenant
from backend.usage.models import Account
from tests.backend.rest.test_conventions import METHODS, PRIVATE, address, methods_of
from tests.factories import bearer, make_api_key, make_tenant

pytestmark = pytest.mark.usefixtures("committed_db")

CANARY = "canary-of-the-other-tenant"
MODEL_OF = {
    "v1/api_keys": ("tenants.ApiKey", Prefix.API_KEY),
    "v1/teacher_keys": ("compiles.TeacherKey", Prefix.TEACHER_KEY),
    "v1/compiles": ("compiles.Compile", Prefix.COMPILE),
    "v1/artifacts": ("artifacts.Artifact", Prefix.ARTIFACT),
    "v1/deployments": ("serving.Deployment", Prefix.DEPLOYMENT),
    "v1/models": ("serving.Deployment", Prefix.DEPLOYMENT),
    "v1/registry": ("registry.Contribution", Prefix.EPOCH),  # an epoch is everybody's, a contribution is not one
    "v1/uploads": ("compiles.Upload", Prefix.UPLOAD),
    "v1/select": ("selections.Selection", Prefix.SELECTION),
    "v1/drafts": ("drafts.Draft", Prefix.DRAFT),
    "v1/webhook_endpoints": ("webhooks.WebhookEndpoint", Prefix.WEBHOOK_ENDPOINT),
    "v1/webhook_events": ("webhooks.WebhookEvent", Prefix.WEBHOOK_EVENT),
    "v1/webhook_deliveries": ("webhooks.WebhookDelivery", Prefix.WEBHOOK_DELIVERY),
    "v1/budgets": ("usage.Budget", Prefix.BUDGET),
    "v1/invoices": ("billing.Invoice", Prefix.INVOICE),
    "v1/members": ("tenants.Member", Prefix.MEMBER),
    "v1/invitations": ("tenants.Invitation", Prefix.INVITATION),
}


# Where not any value will do.
VALUES: dict[str, dict[str, Any]] = {"usage.Budget": {"cap_microusd": 1}}
MADE_WITH_THE_TENANT = {"usage.Account", "tenants.AuditHead"}


def value_of(field: Any) -> Any:
    """Some value that fits: the canary wherever there is room for it."""
    if field.choices:
        return field.choices[0][0]
    if isinstance(field, models.JSONField):
        return {"text": CANARY}
    if isinstance(field, (models.CharField, models.TextField)):
        canary = f"{CANARY}-{new_uuid7()}" if field.unique else CANARY  # other modules commit such rows as well
        return canary[: field.max_length or 100]
    if isinstance(field, models.UUIDField):
        return new_uuid7()
    if isinstance(field, models.BooleanField):
        return False
    if isinstance(field, models.IntegerField):
        return 0
    if isinstance(field, models.FloatField):
        return 0.5
    if isinstance(field, models.DateTimeField):
        return timezone.now()
    if isinstance(field, models.BinaryField):
        return CANARY.encode()
    if type(field).__name__ == "ArrayField":
        return []
    if type(field).__name__ == "HalfVectorField":
        return [1.0] + [0.0] * ((field.dimensions or 384) - 1)
    raise AssertionError(f"the sweep does not know how to fill {field}")


def make_row(model: type[models.Model], tenant: Tenant, made: dict[str, Any]) -> Any:
    """A row of the tenant, and before it every row that it points to."""
    if model._meta.label in made:
        return made[model._meta.label]
    values: dict[str, Any] = {"tenant_id": tenant.id}
    for field in model._meta.concrete_fields:
        if field.name in ("id", "tenant_id") or field.generated:
            continue
        if field.is_relation:
            target = field.related_model
            is_ours = issubclass(target, TenantOwned)
            values[field.name] = make_row(target, tenant, made) if is_ours else make_user(target)
        elif not field.null:
            values[field.name] = value_of(field)
    values |= VALUES.get(model._meta.label, {})
    if model._meta.label in MADE_WITH_THE_TENANT:
        made[model._meta.label] = model._default_manager.get(tenant_id=tenant.id)
    elif model._meta.label == "usage.LedgerLine":  # the lines of a transaction sum to 0
        lines = [model(**values | {"amount_microusd": amount}) for amount in (1, -1)]
        made[model._meta.label] = model._default_manager.bulk_create(lines)[0]
    else:
        made[model._meta.label] = model._default_manager.create(**values)
    return made[model._meta.label]


def make_user(model: type[models.Model]) -> models.Model:
    return model._default_manager.create(username=f"{CANARY}-{new_uuid7()}")


@pytest.fixture(scope="module")
def other(django_db_setup: None, django_db_blocker: Any) -> dict[str, UUID]:
    """One row of every tenant-owned table, of a tenant that is not ours: its ids by model."""
    tenant, made = make_tenant_unblocked(django_db_blocker)
    return {label: row.id for label, row in made.items()} | {"tenants.Tenant": tenant.id}


def make_tenant_unblocked(blocker: Any) -> tuple[Tenant, dict[str, Any]]:
    made: dict[str, Any] = {}
    with blocker.unblock():
        tenant = make_tenant(CANARY)
        make_api_key(tenant, name=CANARY)
        with tenant_scope(tenant.id):
            for model in apps.get_models():
                if issubclass(model, TenantOwned):
                    make_row(model, tenant, made)
    return tenant, made


@pytest.fixture
def ours() -> str:
    return make_api_key(make_tenant("ours"))


def ask(method: str, path: str, secret: str, **body: Any) -> Any:
    headers = bearer(secret)
    return Client().generic(method.upper(), path, json.dumps(body), content_type="application/json", headers=headers)


@pytest.mark.parametrize("route", [route for route in PRIVATE if "<" in route])
def test_another_tenants_object_is_not_there(route, other, ours):
    label, prefix = MODEL_OF["/".join(route.split("/")[:2])]
    path = address(route, encode_id(prefix, other[label]))
    for method in METHODS:
        answer = ask(method, path, ours, **({"inputs": ["a"]} if path.endswith("/run") else {}))
        wanted = 404 if method in methods_of(route) else 405
        assert answer.status_code == wanted, f"{method} {path}: {answer.status_code} {answer.content[:300]!r}"
        assert CANARY not in answer.content.decode()


EVERYBODYS = ("v1/plans", "v1/teacher_prices")  # lists of the deployment's own


@pytest.mark.parametrize("route", [route for route in PRIVATE if "<" not in route])
def test_a_list_never_shows_another_tenants_rows(route, other, ours):
    if "get" not in methods_of(route):
        return
    answer = ask("get", address(route), ours)
    text = (b"".join(answer.streaming_content) if answer.streaming else answer.content).decode()
    assert CANARY not in text
    assert not any(str(id) in text for id in other.values())
    own = ("test",)  # our key, and the line of the audit log that tells of it
    is_list = answer["Content-Type"].startswith("application/json") and route not in EVERYBODYS
    rows = json.loads(text).get("data", []) if is_list else []
    assert not [row for row in rows if row.get("name") not in own and row.get("data", {}).get("name") not in own]


def test_the_sweep_would_notice(other, django_db_blocker):
    """The rows are there, and their own tenant sees them: otherwise the 404s above would say nothing."""
    with tenant_scope(other["tenants.Tenant"]):
        for model in apps.get_models():
            if issubclass(model, TenantOwned):
                assert model._default_manager.filter(id=other[model._meta.label]).exists(), model


def test_without_the_filters_of_the_queries_the_wall_still_stands(other):
    """The first wall taken away: a query that forgets its tenant."""
    tenant = make_tenant()
    with tenant_scope(tenant.id):
        for model in apps.get_models():
            if issubclass(model, TenantOwned):
                rows = list(model._default_manager.all())  # its account was made with it
                assert [row for row in rows if model is not Account or row.tenant_id != tenant.id] == [], model


def test_another_tenants_ids_in_a_body_or_query_are_not_there(other, ours):
    cursor = encode_id(Prefix.API_KEY, other["tenants.ApiKey"])
    assert ask("get", f"/v1/api_keys?after={cursor}", ours).status_code == 400
    cursor = encode_id(Prefix.COMPILE, other["compiles.Compile"])
    assert ask("get", f"/v1/compiles?before={cursor}", ours).status_code == 400
