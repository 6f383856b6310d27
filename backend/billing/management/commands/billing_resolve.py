"""`billing_resolve ID`: close an incident that a person has looked into. It opens again if the difference is still
there."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from backend.billing.incidents import resolve
from backend.billing.models import Incident


class Command(BaseCommand):
    help = "Close an incident that you have investigated."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id", type=int)

    def handle(self, *args: Any, id: int, **options: Any) -> None:
        incident = Incident.objects.filter(id=id, resolved_at=None).first()
        if incident is None:
            raise CommandError(f"There is no open incident {id}; `manage.py billing_reconcile` lists them.")
        resolve(incident)
        self.stdout.write(f"Resolved {incident.kind}: {incident.subject}")
