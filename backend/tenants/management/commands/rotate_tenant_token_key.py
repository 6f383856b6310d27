"""`rotate_tenant_token_key [--finish [--now]]`: docs/keys.md says when and what happens to running processes."""

import secrets
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import ProgrammingError
from django.utils import timezone

from backend.domain.errors import CustomerError
from backend.tenants.isolation import TOKEN_TTL_S
from backend.tenants.key_rotation import token_keys
from backend.tenants.key_rotation.secrets_file import changing_secrets

# Tokens of before are still on their way for their time to live, and processes are changed over in minutes.
GRACE = timedelta(seconds=2 * TOKEN_TTL_S)


class Command(BaseCommand):
    help = "Change the key of tenant tokens; both are accepted meanwhile (as the owner: KOLM_DB_ROLE=owner)."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--finish", action="store_true", help="accept KOLM_TENANT_TOKEN_KEY of this environment alone"
        )
        parser.add_argument("--now", action="store_true", help="with --finish: without waiting, for a key that leaked")

    def handle(self, *args: Any, finish: bool, now: bool, **options: Any) -> None:
        try:
            if finish:
                self._finish(now)
            elif settings.KOLM_SECRETS_FILE is not None:
                self._make()
            else:
                self._install()
        except ProgrammingError:  # insufficient privilege
            raise CommandError("Only the owner of the tables changes this key: KOLM_DB_ROLE=owner.") from None
        except CustomerError as fault:
            raise CommandError(fault.message) from None

    def _make(self) -> None:
        """Accepted before it is written down: whoever reads the new key can use it."""
        with changing_secrets() as kept:
            kept["tenant_token_key"] = key = secrets.token_hex(32)
            token_keys.accept(bytes.fromhex(key))
        self.stdout.write(
            "A new key is in secrets.json, and both are accepted. `make down && make up` ends the old one."
        )

    def _install(self) -> None:
        token_keys.accept(settings.KOLM_TENANT_TOKEN_KEY)
        n_others = token_keys.accepted_keys(settings.KOLM_TENANT_TOKEN_KEY).n_others
        if not n_others:
            raise CommandError(
                "This environment has the key of before: give this command the new KOLM_TENANT_TOKEN_KEY."
            )
        self.stdout.write(
            f"The key of this environment is accepted beside {n_others}. Give it to all processes, then --finish."
        )

    def _finish(self, now: bool) -> None:
        mine = token_keys.accepted_keys(settings.KOLM_TENANT_TOKEN_KEY)
        if mine.since is None:
            raise CommandError(
                "The key of this environment was never installed: run this command without --finish first."
            )
        if not now and mine.n_others and timezone.now() < mine.since + GRACE:
            ends = mine.since + GRACE
            raise CommandError(
                f"The key was installed at {mine.since:%H:%M:%S}; transactions signed with the old one may still run."
                f" Again after {ends:%H:%M:%S} UTC, when every process has the new key, or --now."
            )
        n_gone = token_keys.accept_only(settings.KOLM_TENANT_TOKEN_KEY)
        self.stdout.write(f"The key of this environment alone is accepted; {n_gone} went.")
