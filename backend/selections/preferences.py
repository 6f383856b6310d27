"""The time that a client would wait for a result: `Prefer: wait=10` (RFC 7240)."""

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request

DEFAULT_WAIT_S = 10.0
MAX_WAIT_S = 25.0

PREFER = OpenApiParameter(
    "Prefer",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    description=f"`wait=SECONDS`, at most {MAX_WAIT_S:g}, {DEFAULT_WAIT_S:g} if not given; `respond-async` is wait=0.",
)


def preferred_wait_s(request: Request) -> float:
    """A preference that cannot be read is passed over, as the RFC asks."""
    for part in request.headers.get("Prefer", "").split(","):
        name, _, value = part.partition(";")[0].partition("=")
        if name.strip().lower() == "respond-async":
            return 0.0
        digits = value.strip().strip('"')
        if name.strip().lower() == "wait" and digits.isascii() and digits.isdigit():
            return min(float(digits[:6]), MAX_WAIT_S)
    return min(DEFAULT_WAIT_S, MAX_WAIT_S)
