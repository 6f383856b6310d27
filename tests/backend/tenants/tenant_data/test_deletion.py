"""T24: a deleted tenant leaves nothing. 1,000 canaries are planted in rows, files and Redis; then every table is read
as the owner of the database reads it, and every file."""

import base64
import io
import json
import zipfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from django.conf import settings as configured
from django.db import connection
from django.test import Client
from django.utils import timezone
from psycopg.conninfo import make_conninfo

from backend.artifacts.signing import public_raw, sign_document
from backend.billing.models import Subscription, SubscriptionStatus
from backend.blobs import has_blob, put_blob, put_jsonl
from backend.compiles.lifecycle.retention import FORGOTTEN, forget, sweep_due
from backend.compiles.models import Candidate, Compile, Slice, StepRun, TeacherCall, Upload
from backend.domain.artifact.receipts import pae
from backend.domain.errors import Conflict, InvalidInput
from backend.domain.lifecycle import CompileStatus, StepName
from backend.domain.roles import Role
from backend.rest.new_ids import new_uuid7
from backend.tenants.actors import Actor
from backend.tenants.isolation import tenant_scope, tenant_token
from backend.tenants.models import Erasure, RetentionDue, Tenant
from backend.tenants.team import team_settings
from backend.tenants.tenant_data import deletion
from backend.tenants.tenant_data.export import LEFT_OUT_TABLES, is_secret, write_zip
from backend.tenants.tenant_data.tenant_tables import owned_models, tenant_column
from backend.usage.accounts import set_plan
from deploy.embedded.stack import EmbeddedServices
from tests.backend.tenants.test_isolation_sweep import make_row
from tests.compile_factories import make_candidate, make_compile, make_slice, make_upload
from tests.factories import PASSWORD, age_blobs, bearer, make_api_key, make_member, make_tenant

CANARY = "canary-of-the-other-tenant"  # what `make_row` writes wherever there is room for text
N_CANARIES = 1_000
ANNA = Actor(kind="user", id="usr_7", label="anna@example.com")


def signed(payload: bytes) -> dict[str, Any]:
    return sign_document(payload, deletion.RECEIPT_TYPE)


@pytest.fixture
def tenant(committed_db: None) -> Tenant:
    tenant = make_tenant(f"{CANARY} {new_uuid7()}")
    with tenant_scope(tenant.id):
        set_plan(tenant.id, "team", actor=ANNA)
    return tenant


def plant(tenant: Tenant) -> str:
    """Canaries in every table, in files and in Redis. Returns a digest of one of the files."""
    made: dict[str, Any] = {}
    with tenant_scope(tenant.id):
        for model in owned_models():
            is_there = model is Tenant or model.objects.filter(**{tenant_column(model): tenant.id}).exists()
            if not is_there:
                make_row(model, tenant, made)
    # a name of its own: the salt that was planted under CANARY opens with no key
    place = make_slice(make_compile(tenant, name=f"{CANARY}-compile"), name=CANARY)
    with tenant_scope(tenant.id):
        Candidate.objects.bulk_create(
            Candidate(
                tenant_id=tenant.id,
                compile=place.compile,
                slice=place,
                text=f"{CANARY} {i}",
                text_key=f"{i}",
                origin="x",
            )
            for i in range(N_CANARIES)
        )
    digests = [put_blob(tenant.id, f"{CANARY} {i}".encode()) for i in range(20)]
    redis.Redis.from_url(configured.REDIS_URL).set(f"kolm:rate:{{{tenant.id}}}:x", CANARY)
    return digests[0]


def hits(tenant: Tenant, services: EmbeddedServices) -> list[str]:
    """Where anything of the tenant still is, row-level security or not."""
    address = make_conninfo(services.env["DATABASE_OWNER_URL"], dbname=connection.settings_dict["NAME"])
    found = []
    with psycopg.connect(address) as db:
        db.execute("SELECT set_config('app.tenant', %s, false)", [tenant_token(tenant.id)])
        tables = db.execute(
            "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace"
            " AND NOT relispartition"
        ).fetchall()
        for (table,) in tables:
            if table in ("tenants_erasure", "kolm_tenant_key"):
                continue
            (n,) = db.execute(f"SELECT count(*) FROM {table} t WHERE t::text LIKE %s", [f"%{tenant.id}%"]).fetchone()
            found += [f"{table}: {n}"] if n else []
    folder = Path(configured.KOLM_BLOB_DIR) / str(tenant.id)
    found += [str(path) for path in folder.rglob("*")] if folder.exists() else []
    found += [str(key) for key in redis.Redis.from_url(configured.REDIS_URL).scan_iter(f"*{tenant.id}*")]
    return found


def test_of_a_deleted_tenant_no_canary_is_left(tenant, embedded_services):
    digest = plant(tenant)
    before = hits(tenant, embedded_services)
    assert len(before) > len(owned_models()), "otherwise this test saw nothing"
    neighbour = make_tenant("neighbour")
    make_candidate(make_slice(make_compile(neighbour)))
    user, secret = make_member(tenant), make_api_key(tenant)
    with tenant_scope(tenant.id):
        row = deletion.ask(tenant.id, user_id=user.pk, typed_name=tenant.name, actor=ANNA)
    assert Client().get("/v1/tenant", headers=bearer(secret)).status_code == 401, "shut before anything is erased"
    row = deletion.erase(row.id, sign=signed)
    assert hits(tenant, embedded_services) == []
    assert not has_blob(tenant.id, digest)
    with tenant_scope(neighbour.id):
        assert Candidate.objects.count() == 1
    statement = deletion.statement_of(row)
    assert statement["rows"]["compiles_candidate"] >= N_CANARIES
    assert statement["n_blobs"] >= 20
    assert CANARY not in json.dumps(row.receipt)
    assert CANARY not in base64.b64decode(row.receipt["payload"]).decode()


def test_the_receipt_is_signed_by_this_deployment(tenant):
    with tenant_scope(tenant.id):
        row = deletion.ask(tenant.id, user_id=1, typed_name=tenant.name, actor=ANNA)
    envelope = deletion.erase(row.id, sign=signed).receipt
    payload = base64.b64decode(envelope["payload"])
    signature = base64.b64decode(envelope["signatures"][0]["sig"])
    Ed25519PublicKey.from_public_bytes(public_raw()).verify(signature, pae(envelope["payloadType"], payload))


def test_what_comes_after_is_swept_an_hour_later_and_the_receipt_stays(tenant, embedded_services):
    with tenant_scope(tenant.id):
        row = deletion.ask(tenant.id, user_id=1, typed_name=tenant.name, actor=ANNA)
    first = deletion.erase(row.id, sign=signed).receipt
    make_upload(tenant, text="of a request that was under way")
    assert hits(tenant, embedded_services) != []
    Erasure.objects.filter(id=row.id).update(done_at=timezone.now() - timedelta(hours=2))
    assert deletion.erase_due(signed) >= 1
    assert hits(tenant, embedded_services) == []
    row.refresh_from_db()
    assert row.receipt == first
    assert row.swept_at is not None


def test_upkeep_finishes_what_the_request_could_not(tenant, embedded_services):
    with tenant_scope(tenant.id):
        row = deletion.ask(tenant.id, user_id=1, typed_name=tenant.name, actor=ANNA)
    assert deletion.erase_due(signed) >= 1
    row.refresh_from_db()
    assert row.done_at is not None
    assert hits(tenant, embedded_services) == []


def test_the_wrong_name_deletes_nothing_and_twice_is_once(tenant):
    with pytest.raises(InvalidInput), tenant_scope(tenant.id):
        deletion.ask(tenant.id, user_id=1, typed_name="Acme", actor=ANNA)
    with tenant_scope(tenant.id):
        deletion.ask(tenant.id, user_id=1, typed_name=tenant.name, actor=ANNA)
    with pytest.raises(Conflict), tenant_scope(tenant.id):
        deletion.ask(tenant.id, user_id=1, typed_name=tenant.name, actor=ANNA)


def test_the_page_deletes_for_an_owner_who_types_the_name(tenant):
    owner, admin = make_member(tenant), make_member(tenant, Role.ADMIN)
    client, other = Client(), Client()
    client.post("/accounts/login/", {"login": owner.email, "password": PASSWORD})
    other.force_login(admin)
    assert other.post("/app/settings/delete", {"name": tenant.name}).status_code == 403
    assert client.post("/app/settings/delete", {"name": "x"}).status_code == 422
    answer = client.post("/app/settings/delete", {"name": tenant.name})
    assert answer.status_code == 302
    page = client.get(answer["Location"])
    assert "The team is deleted" in page.content.decode()
    receipt = client.get(f"{answer['Location']}?format=json").json()
    assert receipt["payloadType"] == deletion.RECEIPT_TYPE
    assert other.get(answer["Location"]).status_code == 404
    assert client.get("/app/")["Location"] == "/app/welcome"


def test_a_team_with_a_paid_plan_is_not_deleted_while_stripe_would_go_on(tenant):
    client = Client()
    client.force_login(make_member(tenant))
    now = timezone.now()
    with tenant_scope(tenant.id):
        Subscription.objects.create(
            tenant_id=tenant.id,
            stripe_subscription_id="sub_1",
            status=SubscriptionStatus.ACTIVE,
            period_start=now,
            period_end=now,
            metered_from=now,
        )
    answer = client.post("/app/settings/delete", {"name": tenant.name})
    assert answer.status_code == 409
    assert not Erasure.objects.filter(tenant_id=tenant.id).exists()


# --- export --------------------------------------------------------------------------------------------------


def test_the_export_has_a_file_for_every_table_and_no_secret(tenant):
    digest = plant(tenant)
    secret = make_api_key(tenant)
    file = io.BytesIO()
    counts = write_zip(tenant.id, file, openers={})
    archive = zipfile.ZipFile(file)
    tables = {model._meta.db_table for model in owned_models()} - LEFT_OUT_TABLES
    assert {name.removesuffix(".jsonl") for name in archive.namelist() if name.endswith(".jsonl")} == tables
    assert counts["compiles_candidate"] >= N_CANARIES
    assert f"blobs/{digest}" in archive.namelist()
    text = b"".join(archive.read(name) for name in archive.namelist()).decode(errors="replace")
    assert text.count(CANARY) >= N_CANARIES
    assert secret not in text
    lines = [json.loads(line) for line in archive.read("compiles_candidate.jsonl").splitlines()]
    assert {line["tenant_id"] for line in lines} == {str(tenant.id)}


def test_no_sealed_or_hashed_column_is_exported():
    columns = {f"{m._meta.db_table}.{f.attname}" for m in owned_models() for f in m._meta.concrete_fields}
    kept = {column for column in columns if not is_secret(column.partition(".")[2])}
    binary = {
        f"{m._meta.db_table}.{f.attname}"
        for m in owned_models()
        for f in m._meta.concrete_fields
        if type(f).__name__ == "BinaryField"
    }
    assert {"tenants_apikey.key_hash", "tenants_invitation.token_hash", "compiles_teacherkey.sealed"}.isdisjoint(kept)
    # each was looked at: no secret, and no sealed text
    assert kept & binary <= {
        "tenants_idempotencykey.body",
        "compiles_slice.embedding",
        "compiles_candidate.embedding",
        "compiles_candidate.token_logprobs",
        "drafts_draft.token_logprobs",
        "drafts_calibration.log_posterior",
        "webhooks_webhookevent.body",
        "webhooks_webhookattempt.detail",
    }


# --- retention -----------------------------------------------------------------------------------------------


def aged(tenant: Tenant, compile: Compile, status: CompileStatus, days: int) -> None:
    with tenant_scope(tenant.id):
        Compile.objects.filter(id=compile.id).update(status=status, ended_at=timezone.now() - timedelta(days=days))


def test_what_is_older_than_the_team_wants_is_forgotten(tenant):
    old, new, failed = (make_compile(tenant, name=name) for name in ("old", "new", "failed"))
    for compile in (old, new, failed):
        make_candidate(make_slice(compile))
    aged(tenant, old, CompileStatus.SUCCEEDED, 40)
    aged(tenant, failed, CompileStatus.FAILED, 40)
    aged(tenant, new, CompileStatus.SUCCEEDED, 3)
    upload = make_upload(tenant, text="a capture")
    with tenant_scope(tenant.id):
        Upload.objects.update(created_at=timezone.now() - timedelta(days=40))
        team_settings.change(tenant.id, actor=ANNA, captures_days=30, candidates_days=30)
    assert RetentionDue.objects.filter(tenant_id=tenant.id).exists()
    age_blobs(tenant.id)
    forget(tenant.id)
    with tenant_scope(tenant.id):
        assert set(Candidate.objects.values_list("compile_id", flat=True)) == {new.id}
        assert Compile.objects.get(id=failed.id).failure_code == FORGOTTEN
        assert Compile.objects.get(id=old.id).failure_code == ""
        assert not Upload.objects.exists()
        assert Slice.objects.filter(compile=old, hint="").exists()
        assert TeacherCall.objects.count() == 0
    assert not has_blob(tenant.id, upload.sha256)
    assert forget(tenant.id) == 0


def test_the_training_sets_go_with_the_candidates(tenant):
    compile, kept = make_compile(tenant), make_compile(tenant)
    make_candidate(make_slice(compile))
    with tenant_scope(tenant.id):
        team_settings.change(tenant.id, actor=ANNA, candidates_days=30)
        shared = put_jsonl(tenant.id, [{"input": "a", "label": "refund", "weight": 1.0}])
        mine = put_jsonl(tenant.id, [{"input": "a", "output": "refund", "weight": 1.0}])
        seen = put_jsonl(tenant.id, [{"output": "refund", "samples": ["refund"]}])
        rules = put_jsonl(tenant.id, [{"when": ["money back"]}])
        made = {"dataset": shared, "completions": mine, "observations": seen, "rules": rules}
        for row, digests in ((compile, made), (kept, {"dataset": shared})):
            steps = StepRun.objects.filter(compile=row, name=StepName.LABELING)
            steps.update(output={"digests": digests, "facts": {}})
    aged(tenant, compile, CompileStatus.SUCCEEDED, 31)
    age_blobs(tenant.id)
    forget(tenant.id)
    assert has_blob(tenant.id, shared)
    assert not any(has_blob(tenant.id, digest) for digest in (mine, seen, rules))


def test_a_team_that_set_nothing_keeps_everything(tenant):
    compile = make_compile(tenant)
    make_candidate(make_slice(compile))
    aged(tenant, compile, CompileStatus.SUCCEEDED, 4_000)
    assert forget(tenant.id) == 0
    with tenant_scope(tenant.id):
        assert Candidate.objects.count() == 1


def test_upkeep_sweeps_who_is_due_once_an_hour(tenant):
    with tenant_scope(tenant.id):
        team_settings.change(tenant.id, actor=ANNA, candidates_days=30)
    sweep_due(limit=1_000)
    assert RetentionDue.objects.get(tenant_id=tenant.id).due_at > timezone.now()


@pytest.mark.parametrize("days", [0, -1, 3_651])
def test_days_out_of_range_are_refused(tenant, days):
    with pytest.raises(InvalidInput), tenant_scope(tenant.id):
        team_settings.change(tenant.id, actor=ANNA, captures_days=days)
