"""The one file that imports stripe: how a question is asked, and who signed an event. What is asked is in
`subscriptions`, `invoices` and `meters`.

The SDK is imported inside functions (it costs 0.3 s). It does not retry by itself: `_ask` does, a few times, only what
may be repeated. Every POST carries an idempotency key made of our row's id and of how often that row has asked, since
Stripe answers a key that once met a 500 with that 500 for a day. Whoever asks again under a new key first looks
whether the old one worked (`find_*`), or repeats what may be repeated (a meter's hourly total).

Nothing here is called inside a transaction.
"""

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from django.conf import settings

from backend.domain.errors import CustomerError, OurError, Unavailable

if TYPE_CHECKING:
    import stripe

TIMEOUT_S = 10
TRIES = 3
PAUSE_S = 0.2
_T = TypeVar("_T")


class StripeRefused(OurError):
    """Stripe said no (4xx): asking again changes nothing. `stripe_code` is Stripe's own word."""

    code = "payment_provider_refused"

    def __init__(self, message: str, *, stripe_code: str = "", status: int = 0) -> None:
        super().__init__(message)
        self.stripe_code = stripe_code
        self.status = status


class StripeUnavailable(Unavailable):
    """No answer, or a 5xx: whether it was done is not known."""

    code = "payment_provider_unavailable"


def is_configured() -> bool:
    return bool(settings.KOLM_STRIPE_KEY)


def check_configured() -> None:
    """Raises CustomerError where this installation takes no payments."""
    if not is_configured():
        message = "This installation takes no payments: it has no Stripe key. The rest works; see docs/billing.md."
        raise CustomerError(message, code="payments_not_configured")


def ask(call: "Callable[[stripe.StripeClient], _T]") -> _T:
    """The answer to one question, tried a few times. Raises StripeRefused or StripeUnavailable."""
    import stripe

    check_configured()
    client = _client(settings.KOLM_STRIPE_KEY, settings.KOLM_STRIPE_API)
    for turn in range(1, TRIES + 1):
        try:
            return call(client)
        except (stripe.APIConnectionError, stripe.RateLimitError) as fault:
            error: stripe.StripeError = fault
        except stripe.StripeError as fault:
            if fault.http_status is not None and fault.http_status < 500 and fault.http_status != 409:
                raise StripeRefused(
                    f"Stripe refused: {fault.user_message or type(fault).__name__}",
                    stripe_code=str(fault.code or ""),
                    status=fault.http_status,
                ) from None
            error = fault
        if turn < TRIES:
            time.sleep(PAUSE_S * turn)
    raise StripeUnavailable(f"Stripe does not answer ({type(error).__name__}); try again in a minute.")


@functools.lru_cache(maxsize=4)
def _client(key: str, address: str) -> "stripe.StripeClient":
    import stripe

    addresses: Any = {"api": address, "meter_events": address} if address else {}
    transport = stripe.RequestsClient(timeout=TIMEOUT_S)
    return stripe.StripeClient(key, base_addresses=addresses, max_network_retries=0, http_client=transport)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedEvent:
    """An event, by what it is about. What it says of the object is not read: the object is fetched."""

    id: str
    type: str
    object_type: str
    object_id: str


def signed_event(body: bytes, signature: str, secret: str) -> SignedEvent | None:
    """The event in a body that Stripe signed within the last 300 s, else None."""
    import stripe

    try:
        event = stripe.Webhook.construct_event(body, signature, secret, tolerance=300, api_key="none")
        about = event.data.object
        return SignedEvent(
            id=str(event.id),
            type=str(event.type),
            object_type=str(getattr(about, "object", "")),
            object_id=str(getattr(about, "id", "") or ""),
        )
    except (stripe.SignatureVerificationError, ValueError, AttributeError, KeyError, TypeError):
        return None


def id_of(value: Any) -> str:
    """The id of a field that may be an id, an object or nothing."""
    return "" if value is None else value if isinstance(value, str) else str(value.id)


def metadata_of(value: Any) -> dict[str, str]:
    """The metadata of an object, as a plain dict."""
    return dict(value.metadata.to_dict()) if value.metadata else {}


def time_of(unix_s: int) -> datetime:
    return datetime.fromtimestamp(unix_s, tz=UTC)
