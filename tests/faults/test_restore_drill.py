"""T32, the restore drill: a stack with data and with work under way is backed up while it works, wiped, and restored.

What must hold afterwards: every artifact is trusted with the keyring that customers pinned before and with the one that
is published now, `ledger_check` finds the books in order, every blob that a row names is there and is what its name
says, the keys of before open the API, drafts can be read, the schema with its grants is the same, and a compile that
was under way ends well by itself.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest

from deploy.embedded import backup, backup_files, credentials, layout, postgres
from deploy.embedded.home import ROOT, Home
from deploy.embedded.layout import Part
from deploy.embedded.stack import end_leftovers
from tests.acceptance.deployment import Customer, Deployment, Row, _embedded, _show_logs, _variables, eventually
from tests.acceptance.specs import small_spec

pytestmark = pytest.mark.timeout(1800)
SPEC = small_spec("drilled")


class Drill:
    """One home, its stack, and the backups made of it."""

    def __init__(self, folder: Path) -> None:
        self.home = Home(path=folder / "home")
        self.variables = _variables("0", KOLM_HOME=str(self.home.path))
        self.to = folder / "backup"

    def up(self) -> Deployment:
        _embedded(self.variables, "up", "--detach")
        state = self.home.read_state()
        parts = tuple(Part(name) for name in state["parts"])
        secrets = credentials.load_or_create(self.home)
        return Deployment(layout.plan(self.home, secrets, self.variables, parts, recorded=state["ports"]))

    def run(self, module: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        command, started = [sys.executable, "-m", f"deploy.embedded.{module}", *arguments], time.monotonic()
        done = subprocess.run(command, cwd=ROOT, env=self.variables, capture_output=True, text=True, timeout=300)
        print(
            f"{module}: {time.monotonic() - started:.1f} s, exit {done.returncode}", *done.stdout.splitlines(), sep="\n"
        )
        return done


@pytest.fixture
def drill() -> Iterator[Drill]:
    folder = Path(tempfile.mkdtemp(prefix="kolm-drill-"))
    found = Drill(folder)
    try:
        yield found
    finally:
        _show_logs(found.home)
        if found.home.path.exists():
            _embedded(found.variables, "down")
            end_leftovers(found.home)
        shutil.rmtree(folder)


def test_a_wiped_stack_comes_back_whole(drill: Drill, tmp_path: Path) -> None:
    before = drill.up()
    with before.customer("Acme") as customer:
        done = customer.succeeded(customer.compile(SPEC), within_s=200)
        teacher_key = customer.api.post("/v1/teacher_keys", json={"name": "mine", "secret": "sk-canary-0123456789"})
        assert teacher_key.status_code == 201, teacher_key.text
        facts = facts_of(before, customer)
        blobs, schema = named_blobs(before), schema_of(before)
        kinds = {name for name, digests in steps_digests(before).items() if digests <= blobs}
        under_way = customer.compile(small_spec("under-way"))
        eventually(lambda: customer.get(f"/v1/compiles/{under_way}")["status"] == "running", within_s=60)
        with uploads_that_come_and_go(before, customer) as coming:
            made = drill.run("backup", "--to", str(drill.to))
            print(f"{coming.n} uploads came and went")
        assert made.returncode == 0, made.stderr
        lost = customer.compile(small_spec("after-the-backup"))
    assert blobs
    assert_private(drill.to)
    assert not (drill.home.blobs / backup.LINKS).exists()

    assert drill.run("restore", "--from", str(drill.to)).returncode == 1  # a stack is up
    _embedded(drill.variables, "down")
    refused = drill.run("restore", "--from", str(drill.to))
    assert (refused.returncode, "holds data" in refused.stderr) == (1, True), refused.stderr
    _embedded(drill.variables, "wipe", "--yes")
    time.sleep(1.1)  # an mtime of before would not do
    restored = drill.run("restore", "--from", str(drill.to))
    assert restored.returncode == 0, restored.stderr

    after = drill.up()
    headers = {"Authorization": f"Bearer {customer.key}"}
    with httpx.Client(base_url=after.url, headers=headers, timeout=40) as api:
        again = Customer(tenant_id=customer.tenant_id, key=customer.key, api=api)
        assert schema_of(after) == schema
        assert facts_of(after, again) == facts
        assert_trusted(after, again, facts["keyring"], tmp_path)
        assert named_blobs(after) >= blobs
        assert_complete(after, drill.home, kinds)
        assert api.get(f"/v1/compiles/{lost}").status_code == 404  # what came later is lost, and nothing else
        ended = again.succeeded(under_way, within_s=200)
        assert ended["artifact"] != done["artifact"]
        assert_in_order(after)
        assert again.succeeded(again.compile(small_spec("new")), within_s=200)["artifact"]
        assert_trusted(after, again, facts["keyring"], tmp_path)


def facts_of(deployment: Deployment, customer: Customer) -> Row:
    """What a customer sees of what was there before the drill's own compile began."""
    name = SPEC["name"]
    compiles = [row for row in customer.get("/v1/compiles", limit=50)["data"] if row["name"] == name]
    [compile] = compiles
    drafts = customer.get("/v1/drafts", family=SPEC.get("family", name), limit=100)["data"]
    assert drafts
    return {
        "tenant": customer.get("/v1/tenant"),
        "compile": compile,
        "receipts": customer.get(f"/v1/compiles/{compile['id']}/receipts"),
        "usage": customer.get(f"/v1/compiles/{compile['id']}/usage"),
        "candidates": customer.get(f"/v1/compiles/{compile['id']}/candidates", limit=100),
        "artifact": hashlib.sha256(customer.download(compile["artifact"])).hexdigest(),
        "drafts": sorted((row["id"], row["text"]) for row in drafts if row["compile"] == compile["id"]),
        "keys": [(row["id"], row["scopes"]) for row in customer.get("/v1/api_keys")["data"]],
        "teacher_keys": customer.get("/v1/teacher_keys")["data"],
        "keyring": httpx.get(f"{deployment.url}/.well-known/kolm-keys.json").json(),
    }


class uploads_that_come_and_go:
    """While the backup is made: captures are uploaded, and forgotten a moment later as a retention sweep does."""

    def __init__(self, deployment: Deployment, customer: Customer) -> None:
        self._deployment, self._customer, self._end = deployment, customer, threading.Event()
        self._thread = threading.Thread(target=self._work)
        self.n = 0

    def __enter__(self) -> "uploads_that_come_and_go":
        self._thread.start()
        eventually(lambda: self.n > 2, within_s=60)
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(timeout=60)
        assert not self._thread.is_alive()

    def _work(self) -> None:
        blobs = self._deployment.plan.home.blobs / str(self._customer.tenant_id)
        headers = {"Authorization": f"Bearer {self._customer.key}", "Content-Type": "application/x-ndjson"}
        with httpx.Client(base_url=self._deployment.url, headers=headers, timeout=40) as api:
            while not self._end.is_set():
                body = json.dumps({"input": f"capture number {self.n} of this drill"}) + "\n"
                made = api.post("/v1/uploads?purpose=captures", content=body)
                assert made.status_code == 201, made.text
                [row] = self._deployment.rows(
                    "DELETE FROM compiles_upload WHERE id = (SELECT max(id::text)::uuid FROM compiles_upload)"
                    " RETURNING sha256"
                )
                (blobs / row["sha256"][:2] / row["sha256"]).unlink()
                self.n += 1


def named_blobs(deployment: Deployment) -> set[tuple[str, str]]:
    """(tenant, digest) of all that rows name and the store has."""
    rows = deployment.rows(f"SELECT * FROM ({backup._REFERENCES}) named(tenant, digest)")
    found = {(row["tenant"], row["digest"]) for row in rows}
    stored = {(tenant, digest) for tenant, digest, _ in backup_files.blob_files(deployment.plan.home.blobs)}
    return found & stored


def assert_complete(deployment: Deployment, home: Home, kinds: set[str]) -> None:
    """Nothing that a finished or running compile needs is missing (of steps' digests: the `kinds` that are blobs), and
    every blob is what its name says."""
    for _, digest, path in backup_files.blob_files(home.blobs):
        assert hashlib.sha256(path.read_bytes()).hexdigest() == digest
    stored = {(tenant, digest) for tenant, digest, _ in backup_files.blob_files(home.blobs)}
    columns = {
        "artifacts_artifact": ("sha256",),
        "compiles_upload": ("sha256",),
        "runner_jobs_runnerjob": ("payload_sha256", "result_sha256", "checkpoint_sha256", "error_sha256"),
    }
    for table, names in columns.items():
        for name in names:
            rows = deployment.rows(f"SELECT tenant_id::text tenant, {name} digest FROM {table} WHERE {name} <> ''")
            missing = {(row["tenant"], row["digest"]) for row in rows} - stored
            assert missing == set(), (table, name)
    assert set(steps_digests(deployment)) & {"dataset", "gold_heldout", "evals"}
    for name, digests in steps_digests(deployment).items():
        if name in kinds:
            assert digests <= stored, name


def steps_digests(deployment: Deployment) -> dict[str, set[tuple[str, str]]]:
    """What steps name, by what it is; some of it are digests of rows, not blobs."""
    rows = deployment.rows(
        "SELECT tenant_id::text tenant, d.key name, d.value digest FROM compiles_steprun,"
        " jsonb_each_text(output->'digests') d WHERE d.value ~ '^[0-9a-f]{64}$'"
    )
    found: dict[str, set[tuple[str, str]]] = {}
    for row in rows:
        found.setdefault(row["name"], set()).add((row["tenant"], row["digest"]))
    return found


def assert_trusted(deployment: Deployment, customer: Customer, pinned: Row, folder: Path) -> None:
    """By the command that customers have, with the keys pinned before and with those published now."""
    published = httpx.get(f"{deployment.url}/.well-known/kolm-keys.json").json()
    artifacts = customer.get("/v1/artifacts", limit=50)["data"]
    assert artifacts
    for artifact in artifacts:
        (folder / "one.kolm").write_bytes(customer.download(artifact["id"]))
        for keyring in (pinned, published):
            (folder / "keyring.json").write_text(json.dumps(keyring))
            command = [sys.executable, "-m", "gpu_runners.cli", "verify", "one.kolm", "--keyring", "keyring.json"]
            environ = os.environ | {"PYTHONPATH": str(ROOT)}
            done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, done.stdout + done.stderr
        told = customer.api.post(f"/v1/artifacts/{artifact['id']}/verify")
        assert (told.status_code, told.json()["verdict"]) == (200, "trusted"), told.text


def assert_in_order(deployment: Deployment) -> None:
    with deployment.python("manage.py", "ledger_check", stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        said = process.stdout.read().decode()
    assert process.returncode == 0, said


def assert_private(folder: Path) -> None:
    for path in [folder, *folder.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path


def schema_of(deployment: Deployment, **role: str) -> str:
    """pg_dump's own words for everything but rows: tables, policies, grants, also those on the database itself."""
    done = pg_dump(superuser(deployment) | role, "--schema-only", "--create")
    assert done.returncode == 0, done.stderr
    lines = (line for line in done.stdout.splitlines() if not line.startswith(("\\restrict", "\\unrestrict")))
    # read back, Postgres writes ARRAY['a'::varchar]::text[] as ARRAY[('a'::varchar)::text]: brackets and casts left out
    return "\n".join(re.sub(r"[()]|::(character varying|text)(\[\])?", "", line) for line in lines)


def pg_dump(environ: Mapping[str, str], *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [postgres.program("pg_dump"), "--no-password", *arguments]
    return subprocess.run(command, env=dict(environ), capture_output=True, text=True, timeout=100)


def superuser(deployment: Deployment) -> dict[str, str]:
    plan = deployment.plan
    return backup.client_environment(
        plan.ports[Part.POSTGRES], plan.credentials.postgres_superuser_password, plan.variables
    )


def test_the_documented_role_dumps_and_the_owner_does_not(deployment: Deployment, customer: Customer) -> None:
    """docs/backups.md's SQL, as a superuser of any other Postgres would say it."""
    page = (ROOT / "docs" / "backups.md").read_text()
    statements = page.split("```sql\n")[1].split("```")[0]
    with deployment.connect() as connection:
        for statement in filter(str.strip, statements.split(";")):
            connection.execute(statement.encode())
    password = statements.split("PASSWORD '")[1].split("'")[0]
    done = pg_dump(superuser(deployment) | {"PGUSER": "kolm_backup", "PGPASSWORD": password}, "--data-only")
    assert done.returncode == 0, done.stderr
    assert str(customer.tenant_id) in done.stdout
    secrets = deployment.plan.credentials
    owner = {"PGUSER": "kolm_owner", "PGPASSWORD": secrets.postgres_owner_password}
    refused = pg_dump(superuser(deployment) | owner, "--data-only")
    assert refused.returncode != 0
    assert "row-level security" in refused.stderr
