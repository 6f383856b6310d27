"""The console as one of Django's apps: templates, static files, and the adapters of allauth."""

from django.apps import AppConfig


class ConsoleConfig(AppConfig):
    name = "backend.console"
    label = "console"

    def ready(self) -> None:
        import backend.console.allauth_adapters  # noqa: F401 (listens for logins)
