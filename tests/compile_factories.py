"""Specs, and rows of compiles: made the way the API makes them, with the one field that matters."""

import hashlib
import json
from datetime import UTC, datetime
from typing import Any

from django.db import connection

from backend.artifacts.models import Artifact, Receipt
from backend.artifacts.receipting import issue_receipt
from backend.artifacts.signing import public_raw, signing_key
from backend.blobs import put_blob
from backend.compiles import leases
from backend.compiles.leases import Lease
from backend.compiles.lifecycle import submission
from backend.compiles.models import TEACHER_KEY, Candidate, Compile, Slice, StepRun, TeacherKey, Upload
from backend.compiles.uploads.rows import UploadPurpose, store_upload
from backend.domain.answers.candidates import text_key
from backend.domain.artifact.building import build_kolm
from backend.domain.artifact.receipts import keyid
from backend.domain.canonical import canonical_json
from backend.domain.ids import Prefix, encode_id
from backend.domain.money.pricing import price_book
from backend.domain.money.teacher_prices import kept_prices
from backend.domain.spec.defaults import judge_of, rewarder_of
from backend.domain.spec.parsing import parse_spec
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from backend.tenants.sealing import seal
from workers.step.durable import CompileRun

LABELS = ("refund", "other")


def gold(n: int, *, labels: tuple[str, ...] = LABELS) -> list[dict[str, str]]:
    """`n` pairs, the labels in turn, no two inputs alike."""
    return [{"input": f"message number {i}", "output": labels[i % len(labels)]} for i in range(n)]


def small_spec(**changes: Any) -> dict[str, Any]:
    """A spec of two labels that every check accepts, with K picks as they are; `changes` replace top-level parts. No
    teacher answers its held-out inputs: most tests have none that could."""
    return {
        "name": "router",
        "task": "Does the customer ask for money back?",
        "output": {"type": "label", "labels": [{"name": name} for name in LABELS]},
        "examples": {"inline": gold(24), "holdout": 0.5},
        "gate": {"min_heldout": 5, "accuracy_lower": 0.5},
        "evaluation": {"teacher_rows": 0},
        "plan": "fixed",
        "teacher": {"provider": "grammar", "model": "kolm-grammar-1"},
        "budget": {"usd": 1},
    } | changes


def make_compile(tenant: Tenant, **changes: Any) -> Compile:
    """A queued compile of `small_spec(**changes)`."""
    with tenant_scope(tenant.id):
        row = submission.submit(tenant.id, small_spec(**changes), api_key_id=None)
        row.refresh_from_db()
        return row


def change(row: Compile, **fields: Any) -> None:
    """Put a compile into a state that it takes a whole street to reach."""
    with tenant_scope(row.tenant_id):
        Compile.objects.filter(id=row.id).update(**fields)


def fresh(row: Any) -> Any:
    with tenant_scope(row.tenant_id):
        row.refresh_from_db()
    return row


def hold(row: Compile, *, owner: str = "test") -> CompileRun:
    """Claim a compile and give the run that a worker would have."""
    lease = leases.claim(row.id, owner=owner)
    assert lease is not None
    spec = parse_spec(row.spec)
    prices = kept_prices(
        row.estimate, spec.teacher, book=price_book(), rewarder=rewarder_of(spec), judge=judge_of(spec)
    )
    return CompileRun(lease=lease, spec=spec, prices=prices)


def lapse(lease: Lease) -> None:
    """As if the holder of this lease had been away for longer than it lasts."""
    with connection.cursor() as cursor:
        past = "UPDATE compiles_compilelease SET lease_until = now() - interval '1 second' WHERE compile_id = %s"
        cursor.execute(past, [lease.compile_id])


def make_upload(
    tenant: Tenant, *, purpose: UploadPurpose = UploadPurpose.CAPTURES, text: str = "where is it"
) -> Upload:
    row: dict[UploadPurpose, dict[str, Any]] = {
        UploadPurpose.CAPTURES: {"input": text},
        UploadPurpose.EXAMPLES: {"input": text, "output": "refund"},
        UploadPurpose.RECORDING: {"item": text, "completions": [{"text": "refund"}]},
    }
    with tenant_scope(tenant.id):
        return store_upload(tenant.id, purpose, json.dumps(row[purpose]).encode() + b"\n")


def make_teacher_key(tenant: Tenant, *, name: str = "mine", secret: str = "sk-teacher-0123456789") -> TeacherKey:
    with tenant_scope(tenant.id):
        sealed = seal(tenant.id, secret.encode(), purpose=TEACHER_KEY)
        return TeacherKey.objects.create(tenant_id=tenant.id, name=name, sealed=sealed, last4=secret[-4:])


def make_slice(row: Compile, *, name: str = "refund", position: int = 0, **changes: Any) -> Slice:
    with tenant_scope(row.tenant_id):
        fields = {"share_ppm": 500_000, "label": "refund", "n_candidates": 12, "k_requested": 4} | changes
        return Slice.objects.create(tenant_id=row.tenant_id, compile=row, name=name, position=position, **fields)


def make_candidate(pool: Slice, *, text: str = "give it back", **changes: Any) -> Candidate:
    with tenant_scope(pool.tenant_id):
        return Candidate.objects.create(
            tenant_id=pool.tenant_id,
            compile_id=pool.compile_id,
            slice=pool,
            text=text,
            text_key=text_key(text),
            origin="fresh",
            **changes,
        )


def make_receipts(row: Compile, *, n: int = 3) -> list[Receipt]:
    """The chain of the first `n` steps, signed by the deployment's key."""
    with tenant_scope(row.tenant_id):
        steps = StepRun.objects.filter(compile=row).order_by("position")[:n]
        digest = hashlib.sha256(row.name.encode()).hexdigest()
        return [issue_receipt(row, step, inputs={}, outputs={"out": digest}, facts={}) for step in steps]


def make_artifact(row: Compile, *, version: int = 1, task_type: str = "label") -> Artifact:
    """A published `.kolm` whose bytes verify, with the receipts that the compile has."""
    with tenant_scope(row.tenant_id):
        receipts = list(Receipt.objects.filter(compile_id=row.id).order_by("seq"))
        members = {f"receipts/{r.seq:02d}-{r.step}.dsse.json": canonical_json(r.envelope) for r in receipts}
        values = {"spec.json": {"name": row.name}, "labels.json": list(LABELS)}
        values |= {"gate.json": {"passed": True}, "k_score.json": {"composite_ppm": 912_345}}
        members |= {path: canonical_json(value) for path, value in values.items()}
        fields = {
            "name": row.name,
            "version": str(version),
            "compile": encode_id(Prefix.COMPILE, row.id),
            "tenant_digest": hashlib.sha256(row.tenant_id.bytes).hexdigest(),
            "task_type": task_type,
            "created_at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "base": {"id": "tiny", "sha256": "0" * 64},
            "k_score_ppm": 912_345,
            "gate": "passed",
        }
        data = build_kolm(members, manifest_fields=fields, key=signing_key(), key_id=keyid(public_raw()))
        artifact = Artifact.objects.create(
            tenant_id=row.tenant_id,
            compile_id=row.id,
            name=row.name,
            version=version,
            sha256=put_blob(row.tenant_id, data),
            size_bytes=len(data),
            manifest=fields,
            k_score_ppm=912_345,
        )
        Compile.objects.filter(id=row.id).update(artifact_id=artifact.id)
        return artifact


def public_id(row: Any) -> str:
    """`cmp_...` of a compile, `art_...` of an artifact, and so on."""
    prefixes = {
        Compile: Prefix.COMPILE,
        Upload: Prefix.UPLOAD,
        TeacherKey: Prefix.TEACHER_KEY,
        Artifact: Prefix.ARTIFACT,
        Receipt: Prefix.RECEIPT,
        Slice: Prefix.SLICE,
        Candidate: Prefix.CANDIDATE,
        StepRun: Prefix.STEP,
    }
    return encode_id(prefixes[type(row)], row.id)
