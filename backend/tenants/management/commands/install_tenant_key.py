"""`install_tenant_key`: puts KOLM_TENANT_TOKEN_KEY where `kolm_tenant()` finds it. Run as the owner, after every
migrate; running it again changes nothing."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser
from django.db import connection, transaction

BLOCK = 64  # of SHA-256, in bytes


class Command(BaseCommand):
    help = "Store the key that tenant tokens are signed with (as the owner: KOLM_DB_ROLE=owner)."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--keep-previous",
            action="store_true",
            help="let tokens of the earlier keys pass too, while web processes are being changed over",
        )

    def handle(self, *args: Any, keep_previous: bool, **options: Any) -> None:
        ipad, opad = pads(settings.KOLM_TENANT_TOKEN_KEY)
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO public.kolm_tenant_key (ipad, opad) VALUES (%s, %s) ON CONFLICT (ipad) DO NOTHING",
                [ipad, opad],
            )
            if not keep_previous:
                cursor.execute("DELETE FROM public.kolm_tenant_key WHERE ipad <> %s", [ipad])


def pads(key: bytes) -> tuple[bytes, bytes]:
    """The inner and outer key of HMAC-SHA256 (RFC 2104, section 2) for a key of at most one block."""
    block = key.ljust(BLOCK, b"\0")
    return bytes(b ^ 0x36 for b in block), bytes(b ^ 0x5C for b in block)
