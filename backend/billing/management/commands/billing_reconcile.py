"""`billing_reconcile [--json]`: compare the ledger, the invoices and Stripe; exit 1 while an incident is open."""

import json
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from backend.billing.incidents import detail_of
from backend.billing.models import Incident
from backend.billing.reconcile import reconcile
from backend.domain.errors import KolmError
from backend.domain.ids import Prefix, encode_id
from backend.rest.times import rfc3339


class Command(BaseCommand):
    help = "Compare the ledger, the invoices and Stripe's copies. Differences are incidents; nothing is mended."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", dest="as_json", help="print one JSON object per incident")

    def handle(self, *args: Any, as_json: bool, **options: Any) -> None:
        try:
            incidents = reconcile()
        except KolmError as fault:
            raise CommandError(fault.message) from None
        for incident in incidents:
            shown = incident_line(incident)
            self.stdout.write(json.dumps(shown) if as_json else "  ".join(f"{k}={v}" for k, v in shown.items()))
        if incidents:
            sys.exit(1)
        if not as_json:
            self.stdout.write("No differences.")


def incident_line(incident: Incident) -> dict[str, Any]:
    return {
        "id": incident.id,
        "kind": incident.kind,
        "tenant": encode_id(Prefix.TENANT, incident.tenant_id) if incident.tenant_id else None,
        "subject": incident.subject,
        "opened_at": rfc3339(incident.opened_at),
        "n_seen": incident.n_seen,
        **detail_of(incident),
    }
