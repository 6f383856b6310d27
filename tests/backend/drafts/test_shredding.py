"""Deletion by key, measured on the bytes of a database: its data files and its write-ahead log.

Canaries go in as drafts, prompts and label answers. None is ever on the disk in the clear; after a purge none opens
with what the database still has.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.conf import settings as django_settings
from psycopg.conninfo import make_conninfo

from backend.domain.errors import OurError
from backend.drafts.models import Draft, FamilyKey, LabelDraft, Source, family_key_purpose
from backend.drafts.purging import purge_family
from backend.drafts.vault import Vault, open_vault
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from backend.tenants.sealing import unseal
from deploy.embedded.home import ROOT
from tests.draft_factories import SCOPE, admitted, axis, of_family, store, store_label
from tests.factories import make_tenant

pytestmark = pytest.mark.usefixtures("committed_db")
N = 40


@pytest.fixture
def superuser(embedded_services: Any) -> Iterator[psycopg.Connection[Any]]:
    """The embedded server's own administrator: may write a checkpoint, so that what is in memory is in the files."""
    plan = embedded_services.stack.plan
    if "postgres" not in plan.parts:
        pytest.skip("DATABASE_URL names a server whose files are not here")
    address = make_conninfo(
        embedded_services.env["DATABASE_OWNER_URL"],
        user="postgres",
        password=plan.credentials.postgres_superuser_password,
        dbname=django_settings.DATABASES["default"]["NAME"],
    )
    with psycopg.connect(address, autocommit=True) as admin:
        yield admin


def on_disk(admin: psycopg.Connection[Any], folder: Path, words: list[bytes]) -> tuple[int, int]:
    """How many of the words are in the data files, and how many in the log, after everything was written out."""
    admin.execute("CHECKPOINT")
    found: dict[bool, set[bytes]] = {True: set(), False: set()}
    for path in folder.rglob("*"):
        if path.is_file():
            is_log, data = "pg_wal" in path.parts, path.read_bytes()
            texts = (data, without_page_heads(data)) if is_log else (data,)
            found[is_log] |= {word for word in words if any(word in text for text in texts)}
    return len(found[False]), len(found[True])


def without_page_heads(segment: bytes) -> bytes:
    """Of the log, what its records say: one goes on behind the next page's head (24 bytes, 40 of the first page)."""
    return b"".join(segment[at + (24 if at else 40) : at + 8192] for at in range(0, len(segment), 8192))


def sealed_things(tenant: Tenant) -> list[bytes]:
    with tenant_scope(tenant.id):
        columns = (
            Draft.objects.values_list("text_sealed", flat=True),
            Draft.objects.exclude(tokens_sealed=None).values_list("tokens_sealed", flat=True),
            Source.objects.values_list("prompt_sealed", flat=True),
            LabelDraft.objects.values_list("answers_sealed", flat=True),
        )
        return [bytes(value) for column in columns for value in column]


def vaults(tenant: Tenant) -> list[Vault]:
    """Every key that the database still gives to who has the deployment's."""
    with tenant_scope(tenant.id):
        families = FamilyKey.objects.values_list("family", flat=True)
        return [vault for family in families if (vault := open_vault(tenant.id, family)) is not None]


def n_opened(tenant: Tenant, sealed: list[bytes], keys: list[Vault]) -> int:
    return sum(any(opens(key, value) for key in keys) for value in sealed)


def opens(key: Vault, value: bytes) -> bool:
    try:
        key.unseal(value)
    except OurError:
        return False
    return True


@pytest.mark.nightly
def test_canaries_are_never_on_the_disk_and_none_opens_after_a_purge(superuser, embedded_services, settings):
    folder = embedded_services.home.pgdata
    words = [f"canary-{token_hex(12)}" for _ in range(N)]
    raw = [word.encode() for word in words]
    tenant, controls = make_tenant(), [f"control-{token_hex(12)}" for _ in range(250)]
    superuser.execute("CREATE TABLE shred_control (word text)")
    try:
        superuser.execute("INSERT INTO shred_control SELECT unnest(%s::text[])", [controls])
        found = on_disk(superuser, folder, [word.encode() for word in controls])
        assert found == (250, 250), "the search finds what is there in the clear"
    finally:
        superuser.execute("DROP TABLE shred_control")

    for n, word in enumerate(words):
        draft = admitted(f"{word} written", tokens=(word, " written"), token_logprobs=(-1.0, -1.0))
        store(tenant, [draft], slice_text=f"{word} asked", vector=axis(n))
        store_label(tenant, f"{word} labelled", [word])
    store(tenant, ["bystander"], scope=of_family("other"))
    sealed = sealed_things(tenant)
    assert len(sealed) == 4 * N + 2
    assert n_opened(tenant, sealed, vaults(tenant)) == 4 * N + 2
    assert on_disk(superuser, folder, raw) == (0, 0), "stored"

    with tenant_scope(tenant.id):
        stolen = open_vault(tenant.id, SCOPE.family)
        wrapped = bytes(FamilyKey.objects.get(family=SCOPE.family).sealed)
    purge_family(tenant.id, SCOPE.family)
    assert n_opened(tenant, sealed, vaults(tenant)) == 2, "an old copy of the rows; only the other family's open"
    assert on_disk(superuser, folder, raw) == (0, 0), "purged"
    superuser.execute("VACUUM drafts_draft, drafts_source, drafts_labeldraft")
    assert on_disk(superuser, folder, raw) == (0, 0), "vacuumed"

    # honestly: whoever kept the key, or finds it wrapped in the log and has KOLM_SEALING_KEY, opens an old copy
    assert stolen is not None
    assert n_opened(tenant, sealed, [stolen]) == 4 * N
    assert on_disk(superuser, folder, [wrapped])[1] == 1
    assert opened_with_the_deployments_key(tenant.id, wrapped)
    settings.KOLM_SEALING_KEY = "A" * 43 + "="
    assert not opened_with_the_deployments_key(tenant.id, wrapped), "without it the wrapped key is noise"


def opened_with_the_deployments_key(tenant_id: UUID, wrapped: bytes) -> bool:
    try:
        unseal(tenant_id, wrapped, purpose=family_key_purpose(SCOPE.family))
    except OurError:
        return False
    return True


def shred(embedded_services: Any) -> str:
    owner = make_conninfo(
        embedded_services.env["DATABASE_OWNER_URL"], dbname=django_settings.DATABASES["default"]["NAME"]
    )
    environment = os.environ | embedded_services.env | {"KOLM_DB_ROLE": "owner", "DATABASE_OWNER_URL": owner}
    done = subprocess.run(
        [sys.executable, "manage.py", "shred_drafts"], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_the_operators_command_takes_deleted_keys_out_of_the_data_files_and_says_what_remains(
    superuser, embedded_services
):
    folder, tenant = embedded_services.home.pgdata, make_tenant()
    store(tenant, ["text"])
    store(tenant, ["text"], scope=of_family("kept"))
    with tenant_scope(tenant.id):
        gone, kept = (bytes(FamilyKey.objects.get(family=name).sealed) for name in (SCOPE.family, "kept"))
    purge_family(tenant.id, SCOPE.family)
    assert on_disk(superuser, folder, [gone])[0] == 1, "a deleted row is in the file until it is overwritten"
    printed = shred(embedded_services)
    assert on_disk(superuser, folder, [gone]) == (0, 1), "in the log until that is recycled, as the command says"
    assert on_disk(superuser, folder, [kept])[0] == 1
    assert len(vaults(tenant)) == 1
    assert "No checkpoint was written" in printed
    assert "write-ahead log" in printed
    assert "backups" in printed


@pytest.mark.nightly
def test_where_the_role_may_it_writes_a_checkpoint(superuser, embedded_services):
    superuser.execute("GRANT pg_checkpoint TO kolm_owner")
    try:
        assert "A checkpoint was written" in shred(embedded_services)
    finally:
        superuser.execute("REVOKE pg_checkpoint FROM kolm_owner")
