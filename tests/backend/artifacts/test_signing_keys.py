"""A signing key has its own dates: what it signed stays trusted whatever happens to its file, and after a rotation."""

import json
import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from django.core.management import CommandError, call_command
from django.db import ProgrammingError, connection
from django.test import Client

from backend.artifacts import rotating
from backend.artifacts.models import Artifact, SigningKey
from backend.artifacts.signing import keyring, public_raw
from backend.blobs import get_blob
from backend.domain.artifact import kolm_verify
from backend.domain.artifact.receipts import keyid
from backend.tenants.models import Tenant
from deploy.embedded.stack import EmbeddedServices
from tests.compile_factories import make_artifact, make_compile, make_receipts, public_id
from tests.factories import bearer, make_api_key, make_tenant
from tests.key_pieces import as_owner, no_database, run_as_owner, signing_key_of_its_own

pytestmark = pytest.mark.usefixtures("committed_db")


@pytest.fixture(autouse=True)
def key_file(tmp_path: Path, committed_db: None, embedded_services: EmbeddedServices) -> Iterator[Path]:
    with signing_key_of_its_own(tmp_path, embedded_services) as mine:
        yield mine


@pytest.fixture
def tenant() -> Tenant:
    return make_tenant()


def published(tenant: Tenant, name: str = "router") -> Artifact:
    row = make_compile(tenant, name=name)
    make_receipts(row)
    return make_artifact(row)


def bytes_of(artifact: Artifact) -> bytes:
    return get_blob(artifact.tenant_id, artifact.sha256)


def pinned_now() -> dict[str, Any]:
    return Client().get("/.well-known/kolm-keys.json").json()


def verdicts(*artifacts: Artifact, keys: dict[str, Any] | None = None) -> list[int]:
    keys = pinned_now() if keys is None else keys
    return [kolm_verify.verify(bytes_of(artifact), keys).exit_code for artifact in artifacts]


def new_pem(path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def entry(key: str) -> dict[str, Any]:
    (found,) = [each for each in pinned_now()["keys"] if each["keyid"] == key]
    return found


def open_keys() -> list[str]:
    return [each["keyid"] for each in pinned_now()["keys"] if each["not_after"] > "9999"]


def test_a_good_artifact_stays_trusted_whatever_the_time_of_the_key_file(key_file, tenant):
    artifact, before = published(tenant), keyring()
    for at in (datetime.now() + timedelta(days=400), datetime(1971, 1, 1)):
        os.utime(key_file, (at.timestamp(), at.timestamp()))
        assert keyring() == before
        assert verdicts(artifact) == [0]
        path = f"/v1/artifacts/{public_id(artifact)}/verify"
        assert Client().post(path, headers=bearer(make_api_key(tenant))).json()["verdict"] == "trusted"


def test_a_copied_folder_of_keys_is_as_trusted(key_file, tenant, tmp_path, settings):
    """`cp -r` and a Kubernetes Secret (links into a folder of its own, replaced as one) both move the time."""
    artifact, before = published(tenant), keyring()
    copy = tmp_path / "restored"
    shutil.copytree(key_file.parent, copy, copy_function=shutil.copyfile)
    settings.KOLM_SIGNING_KEY_FILE = copy / key_file.name
    assert (keyring(), verdicts(artifact)) == (before, [0])
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    (mounted / "..data").symlink_to(copy)
    (mounted / key_file.name).symlink_to(Path("..data") / key_file.name)
    settings.KOLM_SIGNING_KEY_FILE = mounted / key_file.name
    assert (keyring(), verdicts(artifact)) == (before, [0])


def test_a_key_without_a_document_is_trusted_for_all_it_signed_and_written_down_once(
    key_file, tenant, embedded_services
):
    new_pem(key_file)
    artifact, unwritten = published(tenant), entry(keyid(public_raw()))
    assert verdicts(artifact) == [0]
    assert "valid from always" in run_as_owner(embedded_services, "install_signing_key")
    assert entry(keyid(public_raw())) == unwritten
    assert SigningKey.objects.filter(keyid=keyid(public_raw())).exists()
    assert run_as_owner(embedded_services, "install_signing_key") == ""
    assert entry(keyid(public_raw()))["not_before"] == "1970-01-01T00:00:00Z"


def test_a_process_that_customers_reach_can_publish_no_key():
    with pytest.raises(ProgrammingError, match="permission denied"):
        SigningKey.objects.create(keyid="0" * 64, public_key=b"0" * 32, not_before=datetime.now(UTC))
    with pytest.raises(ProgrammingError, match="permission denied"):
        SigningKey.objects.update(revoked_at=None)
    with pytest.raises(ProgrammingError, match="permission denied"):
        SigningKey.objects.all().delete()
    with pytest.raises(CommandError, match="KOLM_DB_ROLE=owner"):
        call_command("rotate_signing_key")


@pytest.mark.nightly
def test_without_the_database_no_keyring_is_published_rather_than_a_part_of_it():
    with no_database():
        answer = Client().get("/.well-known/kolm-keys.json")
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")


def test_after_a_rotation_old_and_new_artifacts_are_trusted(key_file, tenant, embedded_services):
    old, old_key, pinned_before = published(tenant, "old"), keyid(public_raw()), pinned_now()
    run_as_owner(embedded_services, "rotate_signing_key")
    new, new_key = published(tenant, "new"), keyid(public_raw())
    assert new_key != old_key
    assert verdicts(old, new) == [0, 0]
    assert entry(new_key)["not_after"] == "9999-12-31T23:59:59Z"
    closes = datetime.fromisoformat(entry(old_key)["not_after"])
    assert timedelta(hours=23) < closes - datetime.now(UTC) <= timedelta(days=1)
    assert key_file.stat().st_mode & 0o777 == 0o600
    # who pinned before: the old artifact as ever, the new one with words that say what to do
    assert verdicts(old, keys=pinned_before) == [0]
    (reason,) = kolm_verify.verify(bytes_of(new), pinned_before).reasons
    assert "pin it with kolm trust" in reason


def test_what_a_retired_key_signs_after_its_window_is_not_trusted(tenant, embedded_services):
    old = published(tenant)
    run_as_owner(embedded_services, "rotate_signing_key")
    with as_owner(embedded_services):
        closed = SigningKey.objects.exclude(not_after=None)
        assert closed.update(not_after=datetime(2026, 1, 1, tzinfo=UTC)) >= 1
    (reason,) = kolm_verify.verify(bytes_of(old), pinned_now()).reasons
    assert reason.startswith("expired key")


def test_a_leaked_key_vouches_for_nothing_any_more(key_file, tenant, embedded_services):
    old, old_key = published(tenant, "old"), keyid(public_raw())
    said = run_as_owner(embedded_services, "rotate_signing_key", "--leaked", old_key)
    assert f"{old_key} is revoked" in said
    assert verdicts(old, published(tenant, "new")) == [3, 0]
    (reason,) = kolm_verify.verify(bytes_of(old), pinned_now()).reasons
    assert reason.startswith("revoked key")
    assert [path.name for path in key_file.parent.glob("*.pem")] == ["signing_key.pem"]  # no copy of a leaked key


def test_a_key_is_revoked_by_its_name_however_often_it_is_said(tenant, embedded_services):
    """Also when it was retired long ago: the key in use stays, and one that is prepared stays open."""
    old, old_key = published(tenant, "old"), keyid(public_raw())
    with pytest.raises(CommandError, match="no such key"):
        run_as_owner(embedded_services, "rotate_signing_key", "--leaked", "f" * 64)
    assert keyid(public_raw()) == old_key
    run_as_owner(embedded_services, "rotate_signing_key")
    run_as_owner(embedded_services, "rotate_signing_key", "--prepare")
    new, new_key, n_open = published(tenant, "new"), keyid(public_raw()), open_keys()
    for _ in range(2):
        run_as_owner(embedded_services, "rotate_signing_key", "--leaked", old_key)
        assert (verdicts(old, new), keyid(public_raw()), open_keys()) == ([3, 0], new_key, n_open)


def test_a_leaked_key_that_is_still_in_its_place_is_not_finished_with(embedded_services):
    key = keyid(public_raw())
    with pytest.raises(CommandError, match="put the new one there first"):
        run_as_owner(embedded_services, "rotate_signing_key", "--finish", "--leaked", key)
    assert entry(key)["revoked_at"] is None


def test_a_rotation_that_was_killed_is_gone_on_with(key_file, tenant, embedded_services):
    """After each step of it: everything that was signed is trusted, and the next run ends it with one new key."""
    next_file, old, old_key = key_file.with_name("signing_key.next.pem"), published(tenant, "old"), keyid(public_raw())
    run_as_owner(embedded_services, "rotate_signing_key", "--prepare")  # killed here: published, signs nothing
    assert verdicts(old, published(tenant, "prepared")) == [0, 0]
    n_keys = len(pinned_now()["keys"])
    with as_owner(embedded_services):
        rotating.prepare(next_file, lambda text: None)
    rotating.switch(next_file, keep_old=True, say=lambda text: None)  # and here: it signs, the old one is still open
    new, new_key = published(tenant, "switched"), keyid(public_raw())
    assert verdicts(old, new) == [0, 0]
    run_as_owner(embedded_services, "rotate_signing_key")
    assert (len(pinned_now()["keys"]), keyid(public_raw())) == (n_keys, new_key)
    assert entry(old_key)["not_after"] < "9999"
    assert verdicts(old, new) == [0, 0]


class Killed(BaseException):
    """Nothing of ours catches it, as nothing catches SIGKILL."""


class Reaper:
    """Ends the run before its n-th effect: a file that is moved into place, or a statement that writes."""

    def __init__(self, n: int) -> None:
        self.left, self._replace = n, os.replace

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith(("INSERT", "UPDATE", "DELETE")):
            self._count()
        return execute(sql, params, many, context)

    def replace(self, source: Any, target: Any) -> None:
        self._count()
        self._replace(source, target)

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed


@pytest.mark.nightly
@pytest.mark.parametrize("leaked", [False, True])
def test_wherever_a_rotation_is_killed_nothing_good_is_refused_and_the_next_run_ends_it(
    leaked, key_file, tenant, embedded_services, tmp_path, monkeypatch
):
    pinned = tmp_path / "keyring.json"
    monkeypatch.setenv("KOLM_KEYRING", str(pinned))
    is_over, n = False, 0
    while not is_over:
        pinned.write_text(json.dumps(keyring()))
        old, old_key, reaper = published(tenant, f"old-{n}"), keyid(public_raw()), Reaper(n)
        command = ["rotate_signing_key", *(["--leaked", old_key] if leaked else [])]
        with monkeypatch.context() as patched, as_owner(embedded_services):
            patched.setattr(os, "replace", reaper.replace)
            try:
                with connection.execute_wrapper(reaper):
                    call_command(*command, stdout=StringIO())
                is_over = True
            except Killed:
                pass
        now = published(tenant, f"killed-{n}")
        is_revoked = entry(old_key)["revoked_at"] is not None
        for keys in (pinned_now(), json.loads(pinned.read_text())):
            assert verdicts(now, keys=keys) == [0], n
            assert verdicts(old, keys=keys) in ([0], [3 if is_revoked else 0]), n
        if leaked or not is_over:
            run_as_owner(embedded_services, *command)
        assert keyid(public_raw()) != old_key
        after = published(tenant, f"after-{n}")
        for keys in (pinned_now(), json.loads(pinned.read_text())):
            assert verdicts(old, after, keys=keys) == [3 if leaked else 0, 0], n
        assert open_keys() == [keyid(public_raw())], n
        assert not key_file.with_name("signing_key.next.pem").exists()
        n += 1
    assert n > 5


def test_of_two_rotations_at_once_the_second_is_told_so_and_the_first_ends_well(
    key_file, tenant, embedded_services, monkeypatch
):
    """It begins just before the first puts its key into place."""
    old, said = published(tenant, "old"), []
    n_keys, move = len(pinned_now()["keys"]), os.replace

    def rotate_too() -> None:
        try:
            call_command("rotate_signing_key", stdout=StringIO())
        except CommandError as fault:
            said.append(str(fault))
        connection.close()

    def replace(source: Any, target: Any) -> None:
        if Path(target) == key_file and not said:
            said.append("begun")
            second = Thread(target=rotate_too)
            second.start()
            second.join()
        move(source, target)

    monkeypatch.setattr(os, "replace", replace)
    run_as_owner(embedded_services, "rotate_signing_key")
    assert said[1:] == ["Another rotation of the signing key is under way; run this again when it has ended."]
    assert len(pinned_now()["keys"]) == n_keys + 1
    assert open_keys() == [keyid(public_raw())]
    assert verdicts(old, published(tenant, "new")) == [0, 0]


def test_a_rotation_is_undone_by_putting_the_old_file_back(key_file, tenant, embedded_services):
    old_key = keyid(public_raw())
    run_as_owner(embedded_services, "rotate_signing_key")
    new, new_key = published(tenant, "new"), keyid(public_raw())
    key_file.with_name(f"signing_key.{old_key[:16]}.pem").rename(key_file)
    assert f"{old_key} signs" in run_as_owner(embedded_services, "rotate_signing_key", "--finish")
    assert entry(old_key)["not_after"].startswith("9999")
    assert entry(new_key)["not_after"] < "9999"
    assert verdicts(new, published(tenant, "old-again")) == [0, 0]


def test_a_key_of_after_the_backup_is_published_again_where_its_file_is_left(key_file, tenant, embedded_services):
    """docs/backups.md: the database is of before the rotation, the key's file of after it."""
    old, documents = published(tenant, "old"), list(SigningKey.objects.values())
    run_as_owner(embedded_services, "rotate_signing_key")
    new = published(tenant, "new")
    with as_owner(embedded_services):
        SigningKey.objects.all().delete()
        SigningKey.objects.bulk_create(SigningKey(**each) for each in documents)
    run_as_owner(embedded_services, "install_signing_key")
    run_as_owner(embedded_services, "rotate_signing_key", "--finish")
    assert verdicts(old, new, published(tenant, "after")) == [0, 0, 0]
    assert open_keys() == [keyid(public_raw())]


def test_where_the_file_cannot_be_replaced_the_parts_are_run_one_by_one(
    key_file, tenant, embedded_services, tmp_path, settings
):
    old, elsewhere = published(tenant, "old"), tmp_path / "to the secret store.pem"
    run_as_owner(embedded_services, "rotate_signing_key", "--prepare", "--next", str(elsewhere))
    assert verdicts(old, published(tenant, "still-old")) == [0, 0]
    settings.KOLM_SIGNING_KEY_FILE = elsewhere  # the operator mounts it and rolls the processes
    new = published(tenant, "new")
    assert verdicts(old, new) == [0, 0]
    run_as_owner(embedded_services, "rotate_signing_key", "--finish")
    assert verdicts(old, new) == [0, 0]


def test_the_runners_of_this_machine_know_the_new_key_before_anything_is_signed_with_it(
    key_file, tenant, embedded_services, tmp_path, monkeypatch
):
    pinned, strange = tmp_path / "keyring.json", tmp_path / "strange.pem"
    new_pem(strange)
    theirs = {**keyring()["keys"][0], "name": "another deployment"}
    pinned.write_text(json.dumps({"keys": [theirs]}))
    monkeypatch.setenv("KOLM_KEYRING", str(pinned))
    run_as_owner(embedded_services, "rotate_signing_key", "--prepare")
    run_as_owner(embedded_services, "rotate_signing_key")
    assert verdicts(published(tenant), keys=json.loads(pinned.read_text())) == [0]


def test_every_process_takes_the_new_key_with_its_next_signature(key_file, embedded_services):
    before = public_raw()
    run_as_owner(embedded_services, "rotate_signing_key")
    assert public_raw() != before
