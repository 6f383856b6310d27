"""All keys of a stack with data are changed while it answers, and its folder is copied elsewhere: what customers hold
stays trusted, what they stored still opens."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backend.domain.artifact import kolm_verify
from deploy.embedded.home import ROOT, Home
from deploy.embedded.ports import free_ports
from deploy.embedded.stack import end_leftovers
from tests.deploy.conftest import bare_environ

MAKE_ARTIFACT = """
import sys, uuid, django
django.setup()
from backend.blobs import get_blob
from backend.tenants.models import Tenant
from backend.tenants.isolation import tenant_scope
from tests.compile_factories import make_artifact, make_compile, make_receipts, public_id
tenant = Tenant(id=uuid.UUID(sys.argv[1]))
row = make_compile(tenant, name=sys.argv[2])
make_receipts(row)
artifact = make_artifact(row)
with tenant_scope(tenant.id):
    open(sys.argv[3], "wb").write(get_blob(tenant.id, artifact.sha256))
print(public_id(artifact))
"""
OPEN_TEACHER_KEYS = """
import sys, uuid, django
django.setup()
from backend.compiles.models import TEACHER_KEY, TeacherKey
from backend.tenants.isolation import tenant_scope
from backend.tenants.sealing import unseal
tenant = uuid.UUID(sys.argv[1])
with tenant_scope(tenant):
    print(*(unseal(tenant, bytes(row.sealed), purpose=TEACHER_KEY).decode() for row in TeacherKey.objects.all()))
"""


class Deployment:
    """The embedded stack with its web process, as somebody runs it from a shell."""

    def __init__(self, home: Home) -> None:
        self.home, self.port = home, str(free_ports(1)[0])

    def embedded(self, *arguments: str) -> str:
        return self._run([sys.executable, "-m", "deploy.embedded", *arguments], {})

    def up(self) -> None:
        self.embedded("up", "--detach", "--only", "postgres,valkey,web")

    def manage(self, *arguments: str, is_owner: bool = False) -> str:
        role = {"KOLM_DB_ROLE": "owner"} if is_owner else {}
        return self._run([sys.executable, "manage.py", *arguments], self.exports() | role)

    def python(self, code: str, *arguments: str) -> str:
        return self._run([sys.executable, "-c", code, *arguments], self.exports() | {"PYTHONPATH": str(ROOT)}).strip()

    def exports(self) -> dict[str, str]:
        lines = self.embedded("env").splitlines()
        return {name: value.strip("'") for name, value in (line[7:].split("=", 1) for line in lines)}

    def ask(self, path: str, secret: str = "", body: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"} if secret else {}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data=data, headers=headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())

    def _run(self, command: list[str], variables: dict[str, str]) -> str:
        environment = bare_environ() | {"KOLM_HOME": str(self.home.path), "KOLM_PORT": self.port} | variables
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, (command, done.stdout[-1000:], done.stderr[-3000:])
        return done.stdout


@pytest.fixture
def restored() -> Iterator[Home]:
    path = Path(tempfile.mkdtemp(prefix="kolm-test-"))
    path.rmdir()
    yield Home(path=path)
    if path.exists():
        end_leftovers(Home(path=path))
        shutil.rmtree(path)


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_every_key_of_a_stack_with_data_is_changed_and_nothing_is_lost(
    home: Home, restored: Home, tmp_path: Path
) -> None:
    stack = Deployment(home)
    stack.up()
    tenant = json.loads(stack.manage("create_tenant", "Acme", "--json"))
    key = stack.manage("create_api_key", "--tenant", tenant["id"], "--name", "x", "--scopes", "all", "--json")
    secret = json.loads(key)["secret"]
    stack.ask("/v1/teacher_keys", secret, {"name": "mine", "secret": "sk-of-the-customer"})
    tenant_id = decoded(tenant["id"])
    old = stack.python(MAKE_ARTIFACT, tenant_id, "old", str(tmp_path / "old.kolm"))
    before = stack.ask("/.well-known/kolm-keys.json")

    # while it answers: the signing key at once, the two others from the next start on
    stack.manage("rotate_signing_key", is_owner=True)
    stack.manage("rotate_tenant_token_key", is_owner=True)
    new = stack.python(MAKE_ARTIFACT, tenant_id, "new", str(tmp_path / "new.kolm"))
    assert stack.ask("/v1/tenant", secret)["id"] == tenant["id"]
    assert [verdict(stack, each, secret) for each in (old, new)] == ["trusted", "trusted"]
    pinned = json.loads(home.keyring.read_text())  # what runners of this machine trust
    files = [tmp_path / "old.kolm", tmp_path / "new.kolm"]
    assert [kolm_verify.verify(file.read_bytes(), pinned).exit_code for file in files] == [0, 0]
    assert [kolm_verify.verify(file.read_bytes(), before).exit_code for file in files] == [0, 3]
    stack.manage("rotate_sealing_key", "--new")

    stack.embedded("down")
    stack.up()
    assert stack.ask("/v1/tenant", secret)["id"] == tenant["id"]
    assert "; 0 are not" in stack.manage("rotate_sealing_key", "--reseal")
    stack.manage("rotate_sealing_key", "--drop")

    stack.embedded("down")
    subprocess.run(["cp", "-r", "--preserve=mode", str(home.path), str(restored.path)], check=True)
    for path in restored.path.glob("signing_key*"):
        os.utime(path)
    stack = Deployment(restored)
    stack.up()
    assert stack.exports()["KOLM_SEALING_KEYS_OTHER"] == ""
    assert stack.python(OPEN_TEACHER_KEYS, tenant_id) == "sk-of-the-customer"
    assert [verdict(stack, each, secret) for each in (old, new)] == ["trusted", "trusted"]
    published = stack.ask("/.well-known/kolm-keys.json")
    assert [kolm_verify.verify(file.read_bytes(), published).exit_code for file in files] == [0, 0]
    stack.embedded("down")


def verdict(stack: Deployment, artifact: str, secret: str) -> str:
    return str(stack.ask(f"/v1/artifacts/{artifact}/verify", secret, {})["verdict"])


def decoded(public_id: str) -> str:
    from backend.domain.ids import Prefix, decode_id

    return str(decode_id(Prefix.TENANT, public_id))
