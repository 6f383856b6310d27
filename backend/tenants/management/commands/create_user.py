"""`create_user EMAIL --tenant ten_... [--role owner] [--json]`"""

from typing import Any
from uuid import UUID

from allauth.account.models import EmailAddress
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.core.management.base import CommandError, CommandParser
from django.core.validators import validate_email

from backend.domain.ids import Prefix, encode_id
from backend.domain.roles import Role
from backend.tenants import audit
from backend.tenants.actors import SYSTEM
from backend.tenants.isolation import tenant_scope
from backend.tenants.management_base import TenantCommand, check_tenant, tenant_id
from backend.tenants.models import Member


class Command(TenantCommand):
    help = (
        "Make a person a member of a tenant. A new person's address counts as confirmed; there is no password until"
        " `changepassword` or a reset e-mail gives one."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("email")
        parser.add_argument("--tenant", type=tenant_id, required=True)
        parser.add_argument("--role", choices=[role.value for role in Role], default=Role.OWNER.value)

    def handle(self, *args: Any, email: str, tenant: UUID, role: str, as_json: bool, **options: Any) -> None:
        email = email.strip().lower()
        try:
            validate_email(email)
        except ValidationError:
            raise CommandError(f"{email!r} is no e-mail address.") from None
        check_tenant(tenant)
        users = get_user_model().objects
        with tenant_scope(tenant):
            user = users.filter(username=email).first()
            if user is None:  # whoever signed up under this address confirms it by e-mail
                user = users.create_user(username=email, email=email)
                EmailAddress.objects.create(user=user, email=email, verified=True, primary=True)
            member, is_new = Member.objects.get_or_create(tenant_id=tenant, user=user, defaults={"role": role})
            public_id = encode_id(Prefix.MEMBER, member.id)
            if is_new:
                data = {"email": email, "role": role}
                audit.note(tenant, actor=SYSTEM, action="member.added", target=public_id, data=data)
        self.answer(
            {
                "object": "member",
                "id": public_id,
                "tenant": encode_id(Prefix.TENANT, tenant),
                "email": email,
                "role": member.role,
            },
            as_json=as_json,
        )
