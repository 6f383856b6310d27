"""The sealing key is changed on tables with rows in them: every value opens before, in the middle, after a kill and at
the end; what needs the old key keeps it from being dropped."""

import base64
import hmac
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from io import StringIO
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import UUID

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.apps import apps
from django.conf import settings as configured
from django.core.management import CommandError, call_command
from django.db import connection, models
from django.utils import timezone
from psycopg.conninfo import make_conninfo

from backend.billing.incidents import detail_of, open_incident, open_ones
from backend.compiles.models import TEACHER_KEY, GoldSalt, TeacherKey
from backend.compiles.uploads.inputs import split
from backend.domain.spec.parsing import parse_spec
from backend.drafts.vault import make_vault, open_vault
from backend.serving.models import PACK_REPORT, SHADOW, PackReport, ShadowAnswer
from backend.tenants.actors import SYSTEM
from backend.tenants.idempotency import run_once
from backend.tenants.isolation import tenant_scope
from backend.tenants.key_rotation.resealing import count_others, for_a_while, needed_keys, reseal, sealed_columns
from backend.tenants.models import Tenant
from backend.tenants.sealing import SealedField, current_head, key_id, seal, unseal
from backend.webhooks import endpoints
from backend.webhooks.models import WebhookEndpoint
from backend.webhooks.secrets import signing_secrets
from deploy.embedded.home import ROOT
from deploy.embedded.stack import EmbeddedServices
from tests.compile_factories import make_compile, small_spec
from tests.factories import make_tenant
from tests.key_pieces import as_owner
from workers import upkeep

pytestmark = pytest.mark.usefixtures("committed_db")

# Bytes that are no secret of a tenant's, or that a family's own key seals (which is a sealed value itself).
NOT_SEALED = {
    "artifacts_signingkey.public_key",
    "compiles_candidate.embedding",
    "compiles_candidate.token_logprobs",
    "compiles_slice.embedding",
    "drafts_calibration.log_posterior",
    "drafts_draft.text_mac",
    "drafts_source.slice_mac",
    "drafts_source.label_mac",
    "drafts_draft.text_sealed",
    "drafts_draft.token_logprobs",
    "drafts_draft.tokens_sealed",
    "drafts_labeldraft.answers_sealed",
    "drafts_labeldraft.prompt_mac",
    "drafts_source.prompt_mac",
    "drafts_source.prompt_sealed",
    "registry_epoch.data",
    "webhooks_webhookevent.body",
}


def new_key() -> str:
    return base64.b64encode(secrets.token_bytes(32)).decode()


@pytest.fixture
def old() -> str:
    return configured.KOLM_SEALING_KEY


@pytest.fixture
def new(old: str) -> Iterator[str]:
    """The next key. In the end what the test sealed is under the old one again: a rotation is undone by one the other
    way, and the other tests of the session have that key alone."""
    before = set(everybody())
    key = new_key()
    yield key
    take_back(old, key, [tenant for tenant in everybody() if tenant not in before])


@pytest.fixture
def new_for_all(old: str) -> Iterator[str]:
    """The same, for a test of what goes over everybody: the whole session's tenants, thousands in a full run."""
    key = new_key()
    yield key
    take_back(old, key, everybody())


def take_back(old: str, key: str, tenants: list[UUID]) -> None:
    configured.KOLM_SEALING_KEY, configured.KOLM_SEALING_KEYS_OTHER = old, (key,)
    for _ in reseal(tenants):
        pass
    assert key_id(key) not in needed_keys(tenants)
    configured.KOLM_SEALING_KEYS_OTHER = ()


def everybody() -> list[UUID]:
    from backend.usage.accounts import all_tenants

    return all_tenants()


@pytest.fixture(autouse=True)
def in_the_environment(settings: Any) -> None:
    """As where secrets are in no file that a command could write; a test that wants one names it."""
    settings.KOLM_SECRETS_FILE = None


def rotate_to(key: str, *, others: tuple[str, ...] = ()) -> None:
    configured.KOLM_SEALING_KEY, configured.KOLM_SEALING_KEYS_OTHER = key, others


class Household:
    """A tenant with a sealed value in every column, and what each is to be when it is opened."""

    def __init__(self, n_keys: int = 3) -> None:
        self.tenant: Tenant = make_tenant()
        mine, word = self.tenant.id, secrets.token_hex(8)
        self.words = [f"sk-{word}-{i}" for i in range(n_keys)]
        make_compile(self.tenant, name="split")
        with tenant_scope(mine):
            sealed = [seal(mine, text.encode(), purpose=TEACHER_KEY) for text in self.words]
            TeacherKey.objects.bulk_create(
                TeacherKey(tenant_id=mine, name=text, sealed=each)
                for text, each in zip(self.words, sealed, strict=True)
            )
            self.draft = make_vault(mine, "family").seal(word)
            row, self.webhook = endpoints.create(
                mine, url="https://hooks.example.com/x", events=["compile.*"], description="", actor=SYSTEM
            )
            WebhookEndpoint.objects.filter(id=row.id).update(
                old_secret=row.secret, old_secret_until=timezone.now() + timezone.timedelta(days=1)
            )
            run_once(mine, "key", lambda: word)
            of_it = {"artifact_id": mine, "sealed": seal(mine, word.encode(), purpose=SHADOW)}
            ShadowAnswer.objects.create(tenant_id=mine, deployment_id=mine, **of_it)
            of_it["sealed"] = seal(mine, word.encode(), purpose=PACK_REPORT)
            counted: dict[str, Any] = {"n_answers": 1, "n_tokens": 1, "tried": [], "missed": []}
            PackReport.objects.create(
                tenant_id=mine, **of_it, artifact_sha256="", pack_sha256="", log=word[:8], **counted
            )
            open_incident("test", word, tenant_id=mine, word=word)
        self.word = word

    def check(self) -> None:
        """Every value opens, by the way in which the product opens it."""
        mine = self.tenant.id
        with tenant_scope(mine):
            rows = TeacherKey.objects.of_tenant(mine)
            opened = {r.name: unseal(mine, bytes(r.sealed), purpose=TEACHER_KEY).decode() for r in rows}
            assert opened == {text: text for text in self.words}
            vault = open_vault(mine, "family")
            assert vault is not None
            assert vault.unseal(self.draft) == self.word
            assert set(signing_secrets(WebhookEndpoint.objects.of_tenant(mine).get(), timezone.now())) == {self.webhook}
            assert run_once(mine, "key", lambda: "done again") == self.word
            for model, purpose in ((ShadowAnswer, SHADOW), (PackReport, PACK_REPORT)):
                sealed = bytes(model.objects.of_tenant(mine).get().sealed)
                assert unseal(mine, sealed, purpose=purpose).decode() == self.word
            assert [detail_of(each) for each in open_ones(mine)] == [{"word": self.word}]
            assert GoldSalt.objects.of_tenant(mine).count() == 1

    def heads(self) -> set[bytes]:
        found = set()
        with tenant_scope(self.tenant.id):
            for column in sealed_columns():
                rows = column.model._default_manager.filter(tenant_id=self.tenant.id)
                found |= {bytes(value)[:9] for value in rows.values_list(column.field.name, flat=True) if value}
        return found


def test_every_column_of_sealed_values_is_known() -> None:
    bytes_of = {
        f"{model._meta.db_table}.{field.column}": isinstance(field, SealedField)
        for model in apps.get_models()
        for field in model._meta.local_fields
        if isinstance(field, models.BinaryField)
    }
    assert {name for name, is_sealed in bytes_of.items() if not is_sealed} == NOT_SEALED
    assert len(sealed_columns()) == 9


@pytest.mark.nightly
def test_every_value_opens_during_and_after_a_change_and_the_old_key_goes_when_nothing_needs_it(old, new_for_all):
    household = Household()
    rotate_to(old, others=(new_for_all,))  # the next key gets known before it seals anything
    household.check()
    rotate_to(new_for_all, others=(old,))
    household.check()
    with pytest.raises(CommandError, match=f"need {key_id(old)}"):
        call_command("rotate_sealing_key", "--drop")
    for batch in reseal(everybody()):
        if batch.n_sealed:  # else nothing has changed since the last look
            household.check()
    assert household.heads() == {current_head()}
    call_command("rotate_sealing_key", "--drop", stdout=StringIO())
    rotate_to(new_for_all)
    household.check()


@pytest.mark.nightly
def test_a_reseal_that_is_killed_goes_on_where_it_was(old, new_for_all, embedded_services):
    """The real command in a process of its own, killed with 9 in the middle of 3,000 rows."""
    household = Household(n_keys=3_000)
    address = make_conninfo(embedded_services.env["DATABASE_URL"], dbname=configured.DATABASES["default"]["NAME"])
    keys = {"KOLM_SEALING_KEY": new_for_all, "KOLM_SEALING_KEYS_OTHER": old, "DATABASE_URL": address}
    command = [sys.executable, "manage.py", "rotate_sealing_key", "--reseal"]
    environment = os.environ | embedded_services.env | keys
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "values are sealed under" in process.stdout.readline()
        process.kill()
    rotate_to(new_for_all, others=(old,))
    left = count_others([household.tenant.id])
    assert 0 < left < 3_000 + 9
    household.check()
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert count_others([household.tenant.id]) == 0  # of other tests' tenants some open with no key
    rotate_to(new_for_all)
    household.check()


@pytest.mark.nightly
def test_upkeep_seals_again_in_the_background(old, new_for_all, monkeypatch):
    household = Household()
    rotate_to(new_for_all, others=(old,))
    monkeypatch.setattr(upkeep, "_next_pass", 0.0)
    monkeypatch.setattr(upkeep, "RESEAL_S", 0.0)  # one batch a round
    n_rounds, is_sealed = 0, False
    while not is_sealed:
        is_sealed = upkeep.reseal_values() > 0 and count_others([household.tenant.id]) == 0
        n_rounds += 1
        assert n_rounds < 10_000
    assert n_rounds > 1
    household.check()
    assert household.heads() == {current_head()}


def test_a_round_of_upkeep_ends_also_where_there_are_many_tenants_and_nothing_to_do(
    old, new, django_assert_max_num_queries
):
    """The other parts of upkeep wait for it, and every ten minutes there is a pass over all tenants: one that has
    nothing to be sealed again is one question, however many columns there are."""
    tenants = [make_tenant().id for _ in range(20)]
    a_transaction = 3  # BEGIN, the question, COMMIT
    going = reseal(tenants)
    with django_assert_max_num_queries(2 * a_transaction):
        assert for_a_while(going, 0.0) == (0, False)
    with django_assert_max_num_queries(len(tenants) * a_transaction):
        assert for_a_while(going, 60) == (0, True)
    with django_assert_max_num_queries(2 * len(tenants) * a_transaction):
        assert (count_others(tenants), needed_keys(tenants)) == (0, {})


def test_without_another_key_upkeep_looks_at_nothing(old, django_assert_num_queries):
    with django_assert_num_queries(0):
        assert upkeep.reseal_values() == 0


def test_what_was_sealed_before_keys_had_ids_opens_and_is_sealed_again(old, new):
    """The format of before: a byte 1, nonce, ciphertext."""
    household = Household(n_keys=0)
    mine, nonce = household.tenant.id, secrets.token_bytes(12)
    cipher = AESGCM(base64.b64decode(old))
    plain = b"\x01" + nonce + cipher.encrypt(nonce, b"sk-before", mine.bytes + TEACHER_KEY)
    household.words = ["sk-before"]
    with tenant_scope(mine):
        TeacherKey.objects.create(tenant_id=mine, name="sk-before", sealed=plain)
    household.check()
    rotate_to(new, others=(old,))
    household.check()
    for_a_while(reseal([mine]), 60)
    assert household.heads() == {current_head()}
    rotate_to(new)
    household.check()


@pytest.mark.nightly
def test_a_value_that_opens_with_no_key_stops_nobody_and_is_kept(old, new_for_all):
    household = Household()
    mine = household.tenant.id
    with tenant_scope(mine):
        lost = TeacherKey.objects.create(tenant_id=mine, name="lost", sealed=b"\x02" + bytes(8) + bytes(40))
    rotate_to(new_for_all, others=(old,))
    assert for_a_while(reseal(everybody()), 60)[1]
    assert needed_keys([mine]) == {"": 1}
    out = StringIO()
    call_command("rotate_sealing_key", "--drop", stdout=out)
    with tenant_scope(mine):
        assert bytes(TeacherKey.objects.get(id=lost.id).sealed) == b"\x02" + bytes(8) + bytes(40)
        lost.delete()


def test_the_gold_split_of_a_name_is_the_same_under_another_key(old, new):
    """Else what was held out of one compile would be trained on by the next."""
    tenant, spec = make_tenant(), parse_spec(small_spec(name="kept"))
    make_compile(tenant, name="kept")
    with tenant_scope(tenant.id):
        before = split(tenant.id, spec, spec.examples.inline)
        rotate_to(new, others=(old,))
        assert split(tenant.id, spec, spec.examples.inline) == before
    for_a_while(reseal([tenant.id]), 60)
    rotate_to(new)
    with tenant_scope(tenant.id):
        assert split(tenant.id, spec, spec.examples.inline) == before


def test_names_of_before_get_the_salt_that_they_had(old, new, embedded_services):
    """The migration, on rows that are there: as the owner, whom the wall binds too, and puts the wall back."""
    tenant = make_tenant()
    make_compile(tenant, name="older")
    with tenant_scope(tenant.id):
        before = unseal(tenant.id, bytes(GoldSalt.objects.get().sealed), purpose=b"gold_salt")
        GoldSalt.objects.all().delete()
    with as_owner(embedded_services), connection.schema_editor() as editor:
        import_module("migrations.compiles.0009_older_gold_salts").write_down(apps, editor)
    rotate_to(new, others=(old,))
    with tenant_scope(tenant.id):
        (row,) = GoldSalt.objects.all()
        assert unseal(tenant.id, bytes(row.sealed), purpose=b"gold_salt") == before == salt_of(old, tenant.id, "older")
    with connection.cursor() as cursor:
        cursor.execute("SELECT bool_and(relforcerowsecurity) FROM pg_class WHERE relname LIKE 'compiles_goldsalt'")
        assert cursor.fetchone() == (True,)


def salt_of(key: str, tenant_id: UUID, name: str) -> bytes:
    return hmac.digest(base64.b64decode(key), f"gold-split/{tenant_id}/{name}".encode(), "sha256")


@pytest.mark.nightly
def test_the_embedded_stack_gets_its_new_key_from_the_command(old, settings, tmp_path: Path):
    file = settings.KOLM_SECRETS_FILE = tmp_path / "secrets.json"
    file.write_text(json.dumps({"sealing_key": old, "runner_token": "kept"}))
    out = StringIO()
    call_command("rotate_sealing_key", "--new", stdout=out)
    kept = json.loads(file.read_text())
    assert (kept["sealing_keys_other"], kept["runner_token"]) == ([old], "kept")
    assert len(base64.b64decode(kept["sealing_key"])) == 32
    assert kept["sealing_key"] not in out.getvalue()
    assert file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(CommandError, match="make up"):  # this process has the key of before
        call_command("rotate_sealing_key", "--drop", stdout=out)


def test_of_two_that_change_secrets_at_once_neither_takes_the_others_key_away(old, settings, tmp_path, monkeypatch):
    """A second command begins just before the first one's file is put into place."""
    file = settings.KOLM_SECRETS_FILE = tmp_path / "secrets.json"
    file.write_text(json.dumps({"sealing_key": old}))
    move, seconds = os.replace, []

    def replace(source: Any, target: Any) -> None:
        if not seconds:
            second = Thread(target=call_command, args=("rotate_sealing_key", "--new"), kwargs={"stdout": StringIO()})
            seconds.append(second)
            second.start()
            second.join(0.5)  # it waits for its turn; where it does not, it has written by now
        move(source, target)

    monkeypatch.setattr(os, "replace", replace)
    out = StringIO()
    call_command("rotate_sealing_key", "--new", stdout=out)
    seconds[0].join()
    kept = json.loads(file.read_text())
    first, last = kept["sealing_keys_other"]
    assert last == old
    assert key_id(first) in out.getvalue()


def test_where_secrets_are_in_the_environment_no_key_is_made(settings):
    settings.KOLM_SECRETS_FILE = None
    with pytest.raises(CommandError, match=r"docs/keys\.md"):
        call_command("rotate_sealing_key", "--new")


def test_a_new_deployment_starts_with_one_key(embedded_services: EmbeddedServices):
    assert embedded_services.env["KOLM_SEALING_KEYS_OTHER"] == ""
