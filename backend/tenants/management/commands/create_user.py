"""`create_user EMAIL --tenant ten_... [--json]`"""

from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.core.management.base import CommandError, CommandParser
from django.core.validators import validate_email

from backend.domain.ids import Prefix, encode_id
from backend.tenants.command_lines import TenantCommand, check_tenant, tenant_id
from backend.tenants.models import Member
from backend.tenants.scope import tenant_scope


class Command(TenantCommand):
    help = "Make a person a member of a tenant; the person has no password until `changepassword` gives one."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("email")
        parser.add_argument("--tenant", type=tenant_id, required=True)

    def handle(self, *args: Any, email: str, tenant: UUID, as_json: bool, **options: Any) -> None:
        email = email.strip().lower()
        try:
            validate_email(email)
        except ValidationError:
            raise CommandError(f"{email!r} is no e-mail address.") from None
        check_tenant(tenant)
        users = get_user_model().objects
        with tenant_scope(tenant):
            user = users.filter(username=email).first() or users.create_user(username=email, email=email)
            member, _ = Member.objects.get_or_create(tenant_id=tenant, user=user)
        self.answer(
            {
                "object": "member",
                "id": encode_id(Prefix.MEMBER, member.id),
                "tenant": encode_id(Prefix.TENANT, tenant),
                "email": email,
            },
            as_json=as_json,
        )
