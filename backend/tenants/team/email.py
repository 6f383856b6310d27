"""The e-mails of ours, beside allauth's: plain text."""

import logging
import smtplib

from django.conf import settings
from django.core.mail import send_mail
from django.db import transaction
from django.urls import reverse

from backend.tenants.models import Invitation, Tenant
from backend.tenants.team.invitations import DAYS

logger = logging.getLogger(__name__)

_TEXT = """\
{by} invites you to the team {team} on {site}, as {role}.

Accept within {days} days, with an account that has this e-mail address:

{link}

If you did not expect this e-mail, ignore it: the link works for nobody else.
"""


def send(to: str, subject: str, text: str) -> bool:
    """Send an e-mail; return whether it was handed over."""
    try:
        send_mail(subject, text, None, [to])
    except (OSError, smtplib.SMTPException) as fault:
        logger.warning("an e-mail was not sent: %s", type(fault).__name__)
        return False
    return True


def send_invitation(row: Invitation, token: str) -> str:
    """Send the e-mail when the transaction is through; return the link in it. A mail server that fails is logged, and
    the invitation stands."""
    name = Tenant.objects.values_list("name", flat=True).get(id=row.tenant_id)
    link = link_of(token)
    words = {"by": _one_line(row.invited_by), "team": _one_line(name), "site": settings.KOLM_SITE_NAME}
    text = _TEXT.format(role=row.role, days=DAYS, link=link, **words)
    transaction.on_commit(lambda: send(row.email, f"[{settings.KOLM_SITE_NAME}] Join {_one_line(name)}", text))
    return link


def link_of(token: str) -> str:
    return f"{settings.KOLM_PUBLIC_URL}{reverse('console:invitation', args=[token])}"


def _one_line(text: str) -> str:
    """Return a team's name as one line. It is anybody's words: nothing in them may begin a line of the e-mail, or a
    link."""
    return " ".join(text.replace("://", ": //").split())[:100]
