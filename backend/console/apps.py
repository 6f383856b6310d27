"""The console as one of Django's apps: templates, static files, and what is told to allauth."""

from django.apps import AppConfig


class ConsoleConfig(AppConfig):
    name = "backend.console"
    label = "console"

    def ready(self) -> None:
        import backend.console.allauth_adapters  # noqa: F401 (listens for log-ins)
