"""What must hold of a compile's books however it came to its end: one fact an event, one receipt a step, no number that
two places tell differently."""

import base64
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from uuid import UUID

from backend.domain.canonical import sha256_hex
from backend.domain.ids import Prefix, decode_id
from tests.acceptance.deployment import Customer, Deployment, Row


def check_books(deployment: Deployment, customer: Customer, compile: Row) -> None:
    """Money, receipts and events of one ended compile."""
    check_money(deployment, customer, compile)
    check_receipts(customer, compile)
    check_events(customer, compile)


def check_money(deployment: Deployment, customer: Customer, compile: Row) -> None:
    facts = usage_facts(deployment, compile["id"])
    totals = {billing: sum(f["amount_microusd"] for f in facts if f["billing"] == billing) for billing in BILLINGS}
    steps = customer.get(f"/v1/compiles/{compile['id']}/steps")["data"]
    assert len({fact["source_key"] for fact in facts}) == len(facts)
    assert compile["spent_microusd"] == totals["charge"] == sum(step["spent_microusd"] for step in steps)
    assert compile["waste_microusd"] == totals["waste"] == sum(step["waste_microusd"] for step in steps)
    assert compile["spent_microusd"] <= compile["budget_microusd"]
    assert compile["reserved_microusd"] == 0
    assert not [call["key"] for call in teacher_calls(deployment, compile["id"]) if call["state"] == "started"]


BILLINGS = ("charge", "waste")


def check_receipts(customer: Customer, compile: Row) -> None:
    """One receipt for each step that succeeded, in one chain."""
    receipts = customer.get(f"/v1/compiles/{compile['id']}/receipts")["data"]
    steps = customer.get(f"/v1/compiles/{compile['id']}/steps")["data"]
    assert [row["step"] for row in receipts] == [step["name"] for step in steps if step["status"] == "succeeded"]
    prev = ""
    for seq, row in enumerate(receipts):
        payload = base64.b64decode(row["envelope"]["payload"])
        predicate = json.loads(payload)["predicate"]
        assert (row["seq"], predicate["seq"], predicate["prev"]) == (seq, seq, prev)
        assert row["payload_sha256"] == sha256_hex(payload)
        prev = row["payload_sha256"]


def check_events(customer: Customer, compile: Row) -> None:
    events = customer.events(compile["id"])
    assert [event["seq"] for event in events] == list(range(1, compile["sequence"] + 1))
    ended = Counter(event["data"]["step"] for event in events if event["type"] == "step.succeeded")
    assert set(ended.values()) <= {1}
    assert events[-1]["type"] == f"compile.{compile['status']}"


def usage_facts(deployment: Deployment, compile_id: str) -> list[Row]:
    return deployment.rows("SELECT * FROM usage_usagefact WHERE compile_id = %s", uuid_of(compile_id))


def teacher_calls(deployment: Deployment, compile_id: str) -> list[Row]:
    query = "SELECT * FROM compiles_teachercall WHERE compile_id = %s ORDER BY started_at"
    return deployment.rows(query, uuid_of(compile_id))


def runner_jobs(deployment: Deployment, compile_id: str) -> list[Row]:
    query = "SELECT * FROM runner_jobs_runnerjob WHERE compile_id = %s ORDER BY created_at"
    return deployment.rows(query, uuid_of(compile_id))


def training_set(deployment: Deployment, customer: Customer, compile_id: str) -> list[Row]:
    """The pairs that were trained on, from the blob store."""
    steps = customer.get(f"/v1/compiles/{compile_id}/steps")["data"]
    labeling = next(step for step in steps if step["name"] == "labeling")
    digest = labeling["output"]["digests"]["dataset"]
    path = Path(deployment.plan.home.blobs) / str(customer.tenant_id) / digest[:2] / digest
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def repeated(keys: Iterable[str]) -> list[str]:
    return [key for key, n in Counter(keys).items() if n > 1]


def uuid_of(compile_id: str) -> UUID:
    return decode_id(Prefix.COMPILE, compile_id)
