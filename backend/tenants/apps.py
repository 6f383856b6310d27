"""The app of tenants, their members and keys, and the wall between them."""

from django.apps import AppConfig


class TenantsConfig(AppConfig):
    name = "backend.tenants"
    label = "tenants"

    def ready(self) -> None:
        import backend.tenants.openapi  # noqa: F401 (registers itself with drf-spectacular)
