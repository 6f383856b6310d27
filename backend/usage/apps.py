"""Money: what was used, at which price, who pays, and how much may be spent."""

from django.apps import AppConfig
from django.db.models.signals import post_migrate

from backend.usage.publishing import publish


class UsageConfig(AppConfig):
    name = "backend.usage"
    label = "usage"

    def ready(self) -> None:
        post_migrate.connect(publish, sender=self, dispatch_uid="usage.publish")
