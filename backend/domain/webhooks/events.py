"""The events of webhooks: the one catalogue. OpenAPI's `webhooks:`, the table in docs/webhooks.md and the test send are
made of it.

A body is `{"type", "timestamp", "data": {"object": {...}}}`, at most MAX_BODY bytes. An object that would be larger is
sent thin: `id`, `object`, `status`, `url` and `"truncated": true`; the whole is at `url`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

MAX_BODY = 20_000
_THIN = ("id", "object", "name", "status", "version", "sequence", "url")


class EventType(StrEnum):
    COMPILE_QUEUED = "compile.queued"
    COMPILE_STARTED = "compile.started"
    COMPILE_PROGRESS = "compile.progress"
    COMPILE_GATE_FAILED = "compile.gate_failed"
    COMPILE_SUCCEEDED = "compile.succeeded"
    COMPILE_FAILED = "compile.failed"
    COMPILE_CANCELED = "compile.canceled"
    ARTIFACT_PUBLISHED = "artifact.published"
    ARTIFACT_REVOKED = "artifact.revoked"
    DEPLOYMENT_CREATED = "deployment.created"
    DEPLOYMENT_UPDATED = "deployment.updated"
    DEPLOYMENT_REGRESSION = "deployment.regression"
    BUDGET_THRESHOLD = "budget.threshold"
    BUDGET_REACHED = "budget.reached"
    INVOICE_FINALIZED = "invoice.finalized"
    ENDPOINT_DISABLED = "webhook_endpoint.disabled"
    TEST = "webhook.test"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventEntry:
    """One type: what it says in a sentence, and an object as it comes."""

    type: EventType
    says: str
    object: Mapping[str, Any]

    def body(self) -> dict[str, Any]:
        return {"type": self.type.value, "timestamp": _AT, "data": {"object": dict(self.object)}}


def frozen_body(type: str, timestamp: str, data: Mapping[str, Any]) -> bytes:
    """The bytes that are stored, signed and sent, at every attempt the same. Larger than MAX_BODY: thin.

    >>> frozen_body("webhook.test", "2026-11-22T10:00:00.000Z", {"object": {"object": "webhook_test"}})
    b'{"type":"webhook.test","timestamp":"2026-11-22T10:00:00.000Z","data":{"object":{"object":"webhook_test"}}}'
    """
    body = _bytes({"type": type, "timestamp": timestamp, "data": data})
    if len(body) <= MAX_BODY:
        return body
    whole = data["object"]
    thin = {name: whole[name] for name in _THIN if name in whole and len(str(whole[name])) < 500}
    return _bytes({"type": type, "timestamp": timestamp, "data": {"object": thin | {"truncated": True}}})


def matches(patterns: list[str], type: str) -> bool:
    """Return whether an endpoint that asked for `patterns` gets this type: a type, `*`, or a noun as `compile.*`.

    >>> matches(["compile.*"], "compile.succeeded"), matches(["compile.failed"], "compile.succeeded")
    (True, False)
    """
    return type in patterns or "*" in patterns or f"{type.split('.')[0]}.*" in patterns


def known_patterns() -> tuple[str, ...]:
    """Return what `events` of an endpoint may list."""
    nouns = dict.fromkeys(f"{type.split('.')[0]}.*" for type in EventType)
    return ("*", *nouns, *(type.value for type in EventType))


def _bytes(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


# --- examples -----------------------------------------------------------------------------------------------

_AT = "2026-11-22T10:14:31.204Z"
_HOST = "https://kolm.example"
_COMPILE_ID = "cmp_01k0nqf2m5e8x9v7c3b1a6d4st"
_ARTIFACT_ID = "art_01k0nqhz6w4j2r8y5t7p3m9k1c"

_COMPILE: dict[str, Any] = {
    "id": _COMPILE_ID,
    "object": "compile",
    "name": "refund-router",
    "family": "refund-router",
    "status": "queued",
    "spec_sha256": "9f3c6f0e9d0f8f7c1f0b7be2ad1d9fd1c8a56c6f4d5bba7ac6e2d3f1a0b4c5d6",
    "budget_microusd": 2_000_000,
    "reserved_microusd": 0,
    "spent_microusd": 0,
    "waste_microusd": 0,
    "currency": "usd",
    "k_score_ppm": None,
    "evaluation": None,
    "gate": None,
    "artifact": None,
    "ablation": None,
    "failure": None,
    "sequence": 1,
    "created_at": "2026-11-22T10:12:02.118Z",
    "started_at": None,
    "ended_at": None,
    "last_progress_at": "2026-11-22T10:12:02.118Z",
    "url": f"{_HOST}/v1/compiles/{_COMPILE_ID}",
}
_RUNNING: dict[str, Any] = _COMPILE | {"status": "running", "started_at": "2026-11-22T10:12:03.530Z", "sequence": 2}
_ENDED: dict[str, Any] = _RUNNING | {
    "spent_microusd": 412_380,
    "ended_at": _AT,
    "last_progress_at": _AT,
    "sequence": 61,
}
_FAILURE = {
    "code": "teacher_failed",
    "message": "The teacher did not answer. Resuming the compile tries this step again; what is done stays done.",
    "step": "labeling",
}
_ARTIFACT: dict[str, Any] = {
    "id": _ARTIFACT_ID,
    "object": "artifact",
    "compile": _COMPILE_ID,
    "name": "refund-router",
    "version": 3,
    "sha256": "4b7f2f1d6a90c8e35b1d0f2a7c6e9b8d3f4a5c6e7d8091a2b3c4d5e6f7081920",
    "size_bytes": 23_113_402,
    "k_score_ppm": 912_345,
    "created_at": "2026-11-22T10:14:30.981Z",
    "revoked_at": None,
    "revoked_reason": None,
    "url": f"{_HOST}/v1/artifacts/{_ARTIFACT_ID}",
}
_DEPLOYMENT: dict[str, Any] = {
    "id": "dep_01k0nr4t8v2x6z0b3d7f1h5j9m",
    "object": "deployment",
    "name": "refund-router",
    "state": "active",
    "base": {
        "id": "Qwen/Qwen2.5-0.5B-Instruct",
        "sha256": "6c1c8e0f5a3d9b7246f0e1d2c3b4a5968778695a4b3c2d1e0f9e8d7c6b5a4938",
    },
    "task_type": "json",
    "artifact": _ARTIFACT_ID,
    "previous_artifact": None,
    "canary": None,
    "idle_minutes": 0,
    "pinned": False,
    "max_concurrent": 32,
    "shadow": {"share_ppm": 0, "microusd_per_day": 0},
    "drift": {"margin_ppm": 50_000, "rollback": False},
    "tags": {"team": "support"},
    "version": 1,
    "created_at": "2026-11-22T10:20:00.000Z",
    "updated_at": "2026-11-22T10:20:00.000Z",
    "url": f"{_HOST}/v1/deployments/dep_01k0nr4t8v2x6z0b3d7f1h5j9m",
}
_REGRESSION: dict[str, Any] = _DEPLOYMENT | {
    "version": 4,
    "shadow": {"share_ppm": 20_000, "microusd_per_day": 2_000_000},
    "regression": {
        "artifact": _ARTIFACT_ID,
        "n_compared": 212,
        "agreement_ppm": 774_000,
        "floor_ppm": 892_000,
        "rolled_back": False,
    },
}
_BUDGET: dict[str, Any] = {
    "id": "bud_01k0nq3c8x5v2m7t9r4w6y1z0a",
    "object": "budget",
    "scope": "tenant",
    "api_key": None,
    "cap_microusd": 50_000_000,
    "hard_stop": True,
    "spent_microusd": 40_210_000,
    "held_microusd": 0,
    "period_start": "2026-11-01T00:00:00.000Z",
    "period_end": "2026-12-01T00:00:00.000Z",
    "created_at": "2026-10-30T09:00:00.000Z",
    "threshold_percent": 80,
}
_INVOICE: dict[str, Any] = {
    "object": "invoice",
    "id": "invc_01k0npv7h3d9f5g1j8k6m2n4qr",
    "number": "KOLM-2N4QR7-0007",
    "kind": "usage",
    "status": "open",
    "plan": "pro",
    "period_start": "2026-10-01T00:00:00.000Z",
    "period_end": "2026-11-01T00:00:00.000Z",
    "currency": "usd",
    "usage_microusd": 12_834_567,
    "grants_microusd": 0,
    "our_fault_microusd": 0,
    "subtotal_microusd": 61_830_000,
    "credit_microusd": 0,
    "tax_microusd": 0,
    "total_microusd": 61_830_000,
    "rounding_microusd": -4_567,
    "billed_by": "kolm",
    "hosted_url": None,
    "pdf_url": None,
    "created_at": _AT,
    "paid_at": None,
    "lines": [
        {
            "kind": "usage",
            "meter": "teacher",
            "description": "Teacher calls",
            "amount_microusd": 12_834_567,
            "invoiced_microusd": 12_830_000,
        },
        {
            "kind": "plan",
            "meter": None,
            "description": "Pro plan",
            "amount_microusd": 49_000_000,
            "invoiced_microusd": 49_000_000,
        },
    ],
}
_ENDPOINT: dict[str, Any] = {
    "id": "we_01k0npv7h3d9f5g1j8k6m2n4qr",
    "object": "webhook_endpoint",
    "url": "https://hooks.example.com/kolm",
    "status": "disabled",
    "disabled_reason": "failing",
    "disabled_at": _AT,
}
_TEST: dict[str, Any] = {"object": "webhook_test", "message": "A test send from kolm. Nothing happened."}

CATALOGUE: tuple[EventEntry, ...] = (
    EventEntry(
        type=EventType.COMPILE_QUEUED,
        says="A compile was accepted, or a resumed one is waiting again.",
        object=_COMPILE,
    ),
    EventEntry(
        type=EventType.COMPILE_STARTED,
        says="A worker took the compile.",
        object=_RUNNING,
    ),
    EventEntry(
        type=EventType.COMPILE_PROGRESS,
        says="A step of the compile is finished; `progress` says which and how many of how many.",
        object=_RUNNING | {"progress": {"step": "selection", "steps_done": 4, "steps_total": 9}, "sequence": 34},
    ),
    EventEntry(
        type=EventType.COMPILE_GATE_FAILED,
        says="The compile ended without an artifact: a floor of its gate was not met.",
        object=_ENDED
        | {"status": "gate_failed", "k_score_ppm": 655_010, "gate": {"passed": False, "next_step": "add 40 examples"}},
    ),
    EventEntry(
        type=EventType.COMPILE_SUCCEEDED,
        says="The compile ended with an artifact.",
        object=_ENDED
        | {"status": "succeeded", "k_score_ppm": 912_345, "gate": {"passed": True}, "artifact": _ARTIFACT_ID},
    ),
    EventEntry(
        type=EventType.COMPILE_FAILED,
        says="The compile ended with an error, named in `failure`; `status` is `failed`, or `expired` when no worker "
        "came for a day.",
        object=_ENDED | {"status": "failed", "failure": _FAILURE},
    ),
    EventEntry(
        type=EventType.COMPILE_CANCELED,
        says="The compile was canceled and has stopped.",
        object=_ENDED | {"status": "canceled"},
    ),
    EventEntry(
        type=EventType.ARTIFACT_PUBLISHED,
        says="A compile's artifact can be downloaded, verified and run.",
        object=_ARTIFACT,
    ),
    EventEntry(
        type=EventType.ARTIFACT_REVOKED,
        says="An artifact was revoked: it is not run any more.",
        object=_ARTIFACT | {"revoked_at": _AT, "revoked_reason": "trained on the wrong labels"},
    ),
    EventEntry(
        type=EventType.DEPLOYMENT_CREATED,
        says="A deployment was made: an artifact answers under its name.",
        object=_DEPLOYMENT | {"action": "created"},
    ),
    EventEntry(
        type=EventType.DEPLOYMENT_UPDATED,
        says="A deployment was changed; `action` says how (`changed`, `promoted`, `rolled_back`, `drained`, `started`, "
        "`deleted`).",
        object=_DEPLOYMENT | {"action": "promoted", "version": 2},
    ),
    EventEntry(
        type=EventType.DEPLOYMENT_REGRESSION,
        says="Live answers agree with the teacher less than the held-out accuracy promised; once per version of the "
        "deployment.",
        object=_REGRESSION,
    ),
    EventEntry(
        type=EventType.BUDGET_THRESHOLD,
        says="Spending passed 50 or 80 % of a budget, once each per period.",
        object=_BUDGET,
    ),
    EventEntry(
        type=EventType.BUDGET_REACHED,
        says="All of a budget is spent; with `hard_stop`, what would spend more is refused until the period ends.",
        object=_BUDGET | {"spent_microusd": 50_000_000, "threshold_percent": 100},
    ),
    EventEntry(
        type=EventType.INVOICE_FINALIZED,
        says="A period was closed and its invoice will not change.",
        object=_INVOICE,
    ),
    EventEntry(
        type=EventType.ENDPOINT_DISABLED,
        says="Another endpoint of yours was disabled because it kept failing or answered 410.",
        object=_ENDPOINT,
    ),
    EventEntry(
        type=EventType.TEST,
        says="You asked for a test send; it goes to the one endpoint.",
        object=_TEST,
    ),
)


def entry(type: str) -> EventEntry:
    """Raises KeyError for a type that there is not."""
    return _ENTRIES[EventType(type)]


_ENTRIES = {each.type: each for each in CATALOGUE}
