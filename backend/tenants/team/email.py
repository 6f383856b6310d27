"""The e-mails of ours, beside allauth's: plain text, sent when the transaction is through."""

import logging
import smtplib

from django.core.mail import send_mail
from django.db import transaction

logger = logging.getLogger(__name__)


def send_on_commit(to: str, subject: str, text: str) -> None:
    """Send an e-mail for what the transaction under way changes. A mail server that fails is logged, and the change
    stands."""
    transaction.on_commit(lambda: send(to, subject, text))


def send(to: str, subject: str, text: str) -> bool:
    """Send an e-mail; return whether it was handed over."""
    try:
        send_mail(subject, text, None, [to])
    except (OSError, smtplib.SMTPException) as fault:
        logger.warning("an e-mail was not sent: %s", type(fault).__name__)
        return False
    return True
