"""What must hold of a compile's books however it came to its end: one fact an event, one receipt a step, no number that
two places tell differently."""

import base64
import json
from collections import Counter
from pathlib import Path
from uuid import UUID

from backend.compiles.reactions import OPENS_ROUND
from backend.domain.canonical import sha256_hex
from backend.domain.ids import Prefix, decode_id
from tests.acceptance.deployment import Customer, Deployment, Row


def check_books(deployment: Deployment, customer: Customer, compile: Row) -> None:
    """Money, receipts and events of one ended compile."""
    check_money(deployment, customer, compile)
    check_ledger(deployment, customer, compile)
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


def check_ledger(deployment: Deployment, customer: Customer, compile: Row) -> None:
    """The journal says what the facts say; nothing is held for what has ended; the bill is their sum."""
    query = (
        "SELECT t.id, t.kind, l.account, l.amount_microusd FROM usage_ledgertx t"
        " JOIN usage_ledgerline l ON l.tx_id = t.id WHERE t.compile_id = %s"
    )
    lines = deployment.rows(query, uuid_of(compile["id"]))
    sums: Counter[str] = Counter()
    for line in lines:
        sums[line["id"]] += line["amount_microusd"]
    assert set(sums.values()) <= {0}
    assert sum(line["amount_microusd"] for line in lines if line["account"] == "held") == 0
    revenue = -sum(line["amount_microusd"] for line in lines if line["account"].startswith("revenue:"))
    waste = sum(line["amount_microusd"] for line in lines if line["account"] == "waste")
    assert (revenue, waste) == (compile["spent_microusd"], compile["waste_microusd"])
    bill = customer.get(f"/v1/compiles/{compile['id']}/bill")
    assert (bill["usage_microusd"], bill["waste_microusd"]) == (revenue, waste)
    assert bill["total_microusd"] == revenue - bill["credited_microusd"]
    assert 0 <= bill["credited_microusd"] <= revenue


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


def check_nothing_doubled(deployment: Deployment, customer: Customer, compile: Row) -> None:
    """Of a compile that succeeded: candidates counted as often as they are there, one artifact, one job a runner's
    step, each call paid once."""
    for part in customer.get(f"/v1/compiles/{compile['id']}/slices")["data"]:
        n = compile["spec"]["sampling"]["n_candidates"]
        n_rounds = sum(entry["reaction"] in OPENS_ROUND for entry in part["reactions"])
        assert part["n_generated"] == n + n_rounds * -(-n // 2)
        query = "SELECT text_key FROM compiles_candidate WHERE slice_id = %s"
        keys = [row["text_key"] for row in deployment.rows(query, uuid_of(part["id"]))]
        assert len(keys) == len(set(keys)) == part["n_generated"] - part["n_duplicates"]
    jobs = [(job["kind"], job["status"]) for job in runner_jobs(deployment, compile["id"])]
    assert jobs == [("distill", "succeeded"), ("evaluate", "succeeded")]
    artifacts = deployment.rows("SELECT id FROM artifacts_artifact WHERE compile_id = %s", uuid_of(compile["id"]))
    assert len(artifacts) == 1
    applied = [call["key"] for call in teacher_calls(deployment, compile["id"]) if call["state"] == "applied"]
    assert len(applied) == len(set(applied))
    charged = Counter(fact["sku"] for fact in usage_facts(deployment, compile["id"]) if fact["billing"] == "charge")
    model = compile["spec"]["teacher"]["model"]
    assert charged[f"teacher.{model}.input_token"] == charged[f"teacher.{model}.output_token"] == len(applied)
    assert charged["runner.encoder_job"] == charged["runner.encoder_train_token"] + charged["runner.encoder_read_token"]
    assert charged["runner.encoder_job"] == len(jobs)


def check_waste(deployment: Deployment, compile: Row, *, n_deaths: int) -> list[Row]:
    """A death repeats one batch of calls at most, and what it costs is ours; the calls that were repeated."""
    calls = teacher_calls(deployment, compile["id"])
    assert {call["state"] for call in calls} <= {"applied", "wasted"}
    wasted = [call for call in calls if call["state"] == "wasted"]
    per_life = Counter(call["fence"] for call in wasted)
    assert len(per_life) <= n_deaths
    assert max(per_life.values(), default=0) <= compile["spec"]["teacher"]["concurrency"]
    lost = [fact for fact in usage_facts(deployment, compile["id"]) if fact["sku"].endswith(".lost_call")]
    assert len(lost) == len(wasted)
    assert {fact["billing"] for fact in lost} <= {"waste"}
    return wasted


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


def uuid_of(public_id: str) -> UUID:
    """The UUID that rows have for `cmp_...`, `slc_...` and their like."""
    return decode_id(Prefix(public_id.partition("_")[0]), public_id)
