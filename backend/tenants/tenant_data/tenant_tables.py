"""All tables that hold something of a tenant, from the models themselves: a table that is added is exported and erased
without anybody thinking of it."""

from collections.abc import Iterator

from django.apps import apps
from django.db import models

from backend.tenants.isolation import TenantOwned
from backend.tenants.models import Tenant


def owned_models() -> list[type[models.Model]]:
    """The tenant itself last."""
    owned = [model for model in apps.get_models() if issubclass(model, TenantOwned) and not model._meta.proxy]
    return [*sorted(owned, key=lambda model: model._meta.db_table), Tenant]


def shared_models() -> Iterator[type[models.Model]]:
    """Tables of ids and times that all processes read, with a column for the tenant."""
    for model in apps.get_models():
        names = {field.name for field in model._meta.concrete_fields}
        if "tenant_id" in names and not issubclass(model, TenantOwned):
            yield model


def tenant_column(model: type[models.Model]) -> str:
    return "id" if model is Tenant else "tenant_id"
