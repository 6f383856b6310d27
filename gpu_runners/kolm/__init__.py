"""The typed Python client of kolm.

>>> import kolm
>>> client = kolm.Client()                                     # KOLM_API_KEY, or what `kolm login` saved
>>> done = client.compiles.create("router.yaml", wait=True)    # doctest: +SKIP
>>> done.status, done.k_score                                  # doctest: +SKIP
('succeeded', 0.912345)

Requests are repeated where that is safe (POSTs carry idempotency keys), lists fetch their pages as they are walked, and
an event stream that breaks is taken up where it broke. docs/client.md has all of it.
"""

from .account import (
    AccountState,
    Bill,
    BillGroups,
    BillingDetails,
    BillLine,
    Budget,
    Forecast,
    Invoice,
    Member,
    Plan,
    UsageRow,
)
from .asynchronous.client import AsyncClient
from .client import VERSION, Client
from .deployments import Deployment
from .documents import Unreadable, read_document
from .errors import (
    Conflict,
    Forbidden,
    InvalidRequest,
    KolmError,
    NotFound,
    NotReachable,
    PaymentRequired,
    Problem,
    RateLimited,
    ServerError,
    Unauthenticated,
)
from .events import TERMINAL, Event
from .rows import (
    ApiKey,
    Artifact,
    Candidate,
    Compile,
    CurvePoint,
    Draft,
    Estimate,
    Failure,
    HeldoutAnswer,
    LearningCurve,
    Output,
    OutputField,
    Receipt,
    Run,
    Slice,
    Step,
    TeacherKey,
    TeacherKeyTest,
    Tenant,
    Upload,
    UsageTotal,
    Verification,
)
from .spec_drafts import SpecDraft, spec_from
from .webhooks import BadSignature, WebhookDelivery, WebhookEndpoint, WebhookEvent, sign, verify

__version__ = VERSION
__all__ = [
    "TERMINAL",
    "VERSION",
    "AccountState",
    "ApiKey",
    "Artifact",
    "AsyncClient",
    "BadSignature",
    "Bill",
    "BillGroups",
    "BillLine",
    "BillingDetails",
    "Budget",
    "Candidate",
    "Client",
    "Compile",
    "Conflict",
    "CurvePoint",
    "Deployment",
    "Draft",
    "Estimate",
    "Event",
    "Failure",
    "Forbidden",
    "Forecast",
    "HeldoutAnswer",
    "InvalidRequest",
    "Invoice",
    "KolmError",
    "LearningCurve",
    "Member",
    "NotFound",
    "NotReachable",
    "Output",
    "OutputField",
    "PaymentRequired",
    "Plan",
    "Problem",
    "RateLimited",
    "Receipt",
    "Run",
    "ServerError",
    "Slice",
    "SpecDraft",
    "Step",
    "TeacherKey",
    "TeacherKeyTest",
    "Tenant",
    "Unauthenticated",
    "Unreadable",
    "Upload",
    "UsageRow",
    "UsageTotal",
    "Verification",
    "WebhookDelivery",
    "WebhookEndpoint",
    "WebhookEvent",
    "read_document",
    "sign",
    "spec_from",
    "verify",
]
