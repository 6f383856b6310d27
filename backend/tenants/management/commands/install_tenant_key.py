"""`install_tenant_key [--only]`: puts KOLM_TENANT_TOKEN_KEY where `kolm_tenant()` finds it. Run as the owner, after
every migrate; running it again changes nothing. A changed key is accepted beside the one of before, which processes
that still run sign with; `rotate_tenant_token_key --finish` ends that."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from backend.tenants.key_rotation import token_keys


class Command(BaseCommand):
    help = "Store the key that tenant tokens are signed with (as the owner: KOLM_DB_ROLE=owner)."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--only", action="store_true", help="accept no other key: where no process runs meanwhile")

    def handle(self, *args: Any, only: bool, **options: Any) -> None:
        if only:
            token_keys.accept_only(settings.KOLM_TENANT_TOKEN_KEY)
            return
        token_keys.accept(settings.KOLM_TENANT_TOKEN_KEY)
        if n := token_keys.accepted_keys(settings.KOLM_TENANT_TOKEN_KEY).n_others:
            self.stdout.write(f"{n} earlier keys are accepted too, until rotate_tenant_token_key --finish.")
