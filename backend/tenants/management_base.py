"""The base of the management commands: a tenant on the command line, and answers for people or, with --json, for
programs."""

import json
from argparse import ArgumentTypeError
from typing import Any, ClassVar
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser

from backend.domain.errors import CustomerError, NotFound
from backend.domain.ids import Prefix, decode_id
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant


class TenantCommand(BaseCommand):
    """A command that runs as kolm_app inside a tenant's scope, and whose customer errors are one line, not a
    traceback."""

    requires_system_checks: ClassVar[list[str]] = []  # they import every view, which takes as long as the command

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", dest="as_json", help="print one JSON object")

    def execute(self, *args: Any, **options: Any) -> Any:
        try:
            return super().execute(*args, **options)
        except CustomerError as fault:
            raise CommandError(fault.message) from None

    def answer(self, value: dict[str, Any], *, as_json: bool) -> None:
        if as_json:
            self.stdout.write(json.dumps(value))
        else:
            self.stdout.write("\n".join(f"{name}: {_render(item)}" for name, item in value.items() if name != "object"))


def tenant_id(text: str) -> UUID:
    """Parse `ten_...` into the UUID behind it, for `type=`."""
    try:
        return decode_id(Prefix.TENANT, text)
    except NotFound:
        raise ArgumentTypeError(f"{text!r} is no tenant id (ten_...)") from None


def check_tenant(wanted: UUID) -> None:
    """Raises NotFound where there is no such tenant."""
    with tenant_scope(wanted):
        if not Tenant.objects.filter(id=wanted).exists():
            raise NotFound("There is no such tenant here.")


def _render(item: Any) -> str:
    return ", ".join(item) if isinstance(item, list) else "-" if item is None else str(item)
