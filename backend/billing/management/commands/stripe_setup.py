"""`stripe_setup`: make, or find, the products, prices and meters at Stripe."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from backend.billing.catalog import set_up
from backend.billing.stripe.api import StripeRefused
from backend.domain.errors import KolmError


class Command(BaseCommand):
    help = "Make the plans' prices and the meters at Stripe, or find them. Running it again changes nothing."

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            rows = set_up()
        except StripeRefused as refused:
            raise CommandError(f"{refused.message} ({refused.stripe_code or refused.status})") from None
        except KolmError as fault:
            raise CommandError(fault.message) from None
        for row in rows:
            self.stdout.write(f"{row.lookup_key}\t{row.price_id}\t{row.meter_id}")
