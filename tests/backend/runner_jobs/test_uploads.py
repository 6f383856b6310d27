"""Blobs in parts as a runner sends them, and as somebody would who means harm."""

import base64
import hashlib
import os
import threading
import time
import tracemalloc
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.conf import settings as django_settings
from django.db import connection
from django.test import Client

from backend import blobs
from backend.blobs import get_blob, has_blob, put_blob, sweep_unfinished
from backend.compiles.models import Compile
from backend.domain.jobs.blob_transfers import CHECKPOINT_MARK, PART_BYTES, Upload
from backend.domain.jobs.runner_jobs import Claim
from backend.rest.bodies.body_limits import limit_of
from backend.runner_jobs import blob_uploads
from backend.runner_jobs.models import RunnerJob
from tests.backend.runner_jobs.test_runner_api import beat, claimed, events, queue, report, row
from tests.factories import bearer

pytestmark = pytest.mark.usefixtures("committed_db")
__all__ = ["row"]  # a fixture

BODY = b"".join(os.urandom(1 << 16) * 16 for _ in range(20)) + b"and a few more"  # three parts, all different
SHA256 = hashlib.sha256(BODY).hexdigest()


def parts_of(data: bytes) -> list[bytes]:
    return [data[at : at + PART_BYTES] for at in range(0, len(data), PART_BYTES)]


PARTS = parts_of(BODY)


def where(claim: Claim, sha256: str = SHA256, n_bytes: int = len(BODY)) -> str:
    return f"/internal/runner/jobs/{claim.job_id}/uploads/{sha256}/{n_bytes}"


def state(claim: Claim, *at: Any) -> Any:
    return Client().get(where(claim, *at), headers=bearer(claim.token))


def put(claim: Claim, number: int, data: bytes, *at: Any, token: str = "", digest: bytes | None = None) -> Any:
    told = base64.b64encode(hashlib.sha256(data).digest() if digest is None else digest).decode()
    headers = bearer(token or claim.token) | {"Content-Digest": f"sha-256=:{told}:"}
    path = f"{where(claim, *at)}/parts/{number}"
    return Client().put(path, data, content_type="application/octet-stream", headers=headers)


def finish(claim: Claim, *at: Any, token: str = "") -> Any:
    return Client().post(where(claim, *at), headers=bearer(token or claim.token))


def files(row: Compile) -> list[str]:
    """What lies in the tenant's folder beside blobs."""
    return sorted(path.name for path in Path(django_settings.KOLM_BLOB_DIR, str(row.tenant_id)).glob("unfinished-*"))


@pytest.fixture
def claim(row: Compile) -> Claim:
    queue(row)
    return claimed()


def test_parts_in_order_become_the_blob_and_leave_nothing_else(row, claim):
    assert state(claim).json() == {"n_kept": 0, "is_stored": False}
    for number, part in enumerate(PARTS):
        assert put(claim, number, part).status_code == 204
        assert state(claim).json() == {"n_kept": number + 1, "is_stored": False}
    assert finish(claim).status_code == 201
    assert get_blob(row.tenant_id, SHA256) == BODY
    assert files(row) == []
    assert state(claim).json() == {"n_kept": 3, "is_stored": True}
    assert finish(claim).status_code == 201, "its answer may have been lost"


def test_a_part_that_comes_twice_is_as_good_as_once_and_another_in_its_place_is_refused(row, claim):
    for _ in range(2):
        assert put(claim, 0, PARTS[0]).status_code == 204
    answer = put(claim, 0, PARTS[1])
    assert (answer.status_code, answer.json()["code"]) == (409, "part_differs")
    assert put(claim, 1, PARTS[1]).status_code == 204
    assert put(claim, 2, PARTS[2]).status_code == 204
    assert finish(claim).status_code == 201
    assert get_blob(row.tenant_id, SHA256) == BODY


def test_a_part_out_of_order_is_refused_with_the_one_that_is_next(claim):
    for numbers, kept in (((1, 2), 0), ((2,), 1)):
        for number in numbers:
            answer = put(claim, number, PARTS[number])
            assert (answer.status_code, answer.json()["code"]) == (409, "upload_out_of_order")
            assert f"send part {kept} and" in answer.json()["detail"]
        assert put(claim, 0, PARTS[0]).status_code == 204
    assert finish(claim).status_code == 409


@pytest.mark.parametrize(
    ("number", "data", "status", "code"),
    [
        (0, PARTS[0][:-1], 422, "part_mismatch"),
        (2, PARTS[2] + b"x", 422, "part_mismatch"),
        (2, b"", 422, "part_mismatch"),
        (3, b"more than was announced", 400, "invalid_request"),
        (2**40, b"x", 400, "invalid_request"),
    ],
)
def test_a_part_of_another_length_than_announced_is_refused(row, claim, number, data, status, code):
    for n in range(min(number, 3)):
        assert put(claim, n, PARTS[n]).status_code == 204
    answer = put(claim, number, data)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert state(claim).json()["n_kept"] == min(number, 3), "and nothing of it is kept"


def test_a_part_with_another_digest_is_cut_off_again(claim):
    assert put(claim, 0, PARTS[0], digest=bytes(32)).status_code == 422
    assert state(claim).json()["n_kept"] == 0
    assert put(claim, 0, PARTS[0]).status_code == 204


@pytest.mark.parametrize("header", [{}, {"Content-Digest": "sha-256=:short:"}, {"Content-Digest": "md5=:AAAA:"}])
def test_a_part_without_a_digest_is_refused(claim, header):
    path = f"{where(claim)}/parts/0"
    body, kind = PARTS[0], "application/octet-stream"
    assert Client().put(path, body, content_type=kind, headers=bearer(claim.token) | header).status_code == 400


def test_a_whole_with_another_digest_is_thrown_away(row, claim):
    other = hashlib.sha256(b"another").hexdigest()
    for number, part in enumerate(PARTS):
        put(claim, number, part, other)
    answer = finish(claim, other)
    assert (answer.status_code, answer.json()["code"]) == (422, "digest_mismatch")
    assert not has_blob(row.tenant_id, other)
    assert files(row) == []


@pytest.mark.parametrize("at", [("../" * 8, 5), ("A" * 64, 5), ("0" * 63, 5), ("0" * 64, 0)])
def test_an_upload_has_a_sha256_and_a_length(claim, at):
    assert state(claim, *at).status_code in (400, 404)


def test_one_setting_says_how_much_is_kept(claim, settings):
    settings.KOLM_MAX_BLOB_BYTES = len(BODY) - 1
    for answer in (state(claim), put(claim, 0, PARTS[0]), finish(claim)):
        assert (answer.status_code, answer.json()["code"]) == (413, "payload_too_large")
        assert "KOLM_MAX_BLOB_BYTES" in answer.json()["detail"]
    assert limit_of(where(claim), "") == len(BODY) - 1
    assert limit_of(f"{where(claim)}/parts/0", "") == PART_BYTES
    settings.KOLM_MAX_BLOB_BYTES = len(BODY)
    assert put(claim, 0, PARTS[0]).status_code == 204


def test_a_token_opens_its_own_jobs_uploads_alone(row, claim):
    queue(row)
    other = claimed()
    assert put(claim, 0, PARTS[0]).status_code == 204
    for answer in (put(claim, 1, PARTS[1], token=other.token), finish(claim, token=other.token)):
        assert answer.status_code == 410
    for token in ("", "nobody's", django_settings.KOLM_RUNNER_TOKEN):
        assert Client().get(where(claim), headers=bearer(token)).status_code == 410
    assert state(other).json()["n_kept"] == 0, "what one job has begun is not another's"


def test_a_job_has_one_upload_at_a_time(row, claim):
    """Else a runner that goes wrong would fill the disk with beginnings."""
    assert put(claim, 0, PARTS[0]).status_code == 204
    again = hashlib.sha256(BODY[:-1]).hexdigest(), len(BODY) - 1
    assert put(claim, 0, PARTS[0], *again).status_code == 204
    (left,) = files(row)
    assert again[0] in left
    assert put(claim, 1, PARTS[1]).status_code == 409


def test_two_that_finish_at_once_store_one_blob(row, claim):
    for number, part in enumerate(PARTS):
        put(claim, number, part)
    together = threading.Barrier(4)

    def end(_: int) -> int:
        try:
            together.wait()
            return finish(claim).status_code
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as threads:
        statuses = list(threads.map(end, range(4)))
    assert set(statuses) <= {201, 409}
    assert 201 in statuses
    assert get_blob(row.tenant_id, SHA256) == BODY
    assert finish(claim).status_code == 201


def test_two_that_write_the_same_part_at_once_write_it_once(row, claim):
    together = threading.Barrier(4)

    def write(_: int) -> int:
        try:
            together.wait()
            return put(claim, 0, PARTS[0]).status_code
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(write, range(4))) <= {204, 409}
    assert state(claim).json()["n_kept"] == 1
    for number in (1, 2):
        assert put(claim, number, PARTS[number]).status_code == 204
    assert finish(claim).status_code == 201


def test_a_part_that_was_cut_off_by_a_crash_is_sent_again(row, claim):
    assert put(claim, 0, PARTS[0]).status_code == 204
    (name,) = files(row)
    path = Path(django_settings.KOLM_BLOB_DIR, str(row.tenant_id), name)
    with path.open("ab") as file:
        file.write(PARTS[1][:1000])
    assert state(claim).json()["n_kept"] == 1
    for number in (1, 2):
        assert put(claim, number, PARTS[number]).status_code == 204
    assert finish(claim).status_code == 201


def test_what_a_runner_that_went_away_had_begun_is_swept(row, claim):
    assert put(claim, 0, PARTS[0]).status_code == 204
    sweep_unfinished()
    (name,) = files(row)
    path = Path(django_settings.KOLM_BLOB_DIR, str(row.tenant_id), name)
    past = time.time() - blobs.STALE_S - 1
    os.utime(path, (past, past))
    assert sweep_unfinished() == 1
    assert files(row) == []
    answer = put(claim, 1, PARTS[1])
    assert (answer.status_code, answer.json()["code"]) == (409, "upload_out_of_order")


def test_a_job_that_ends_leaves_no_beginning(row, claim):
    assert put(claim, 0, PARTS[0]).status_code == 204
    assert report(claim).status_code == 204
    assert files(row) == []
    assert put(claim, 1, PARTS[1]).status_code == 410


def test_a_disk_without_room_says_so_before_a_byte_is_sent(row, claim, monkeypatch):
    usage = namedtuple("usage", "total used free")(1, 1, len(BODY) - 1)
    monkeypatch.setattr(blob_uploads.shutil, "disk_usage", lambda _: usage)
    answer = state(claim)
    assert (answer.status_code, answer.json()["code"]) == (507, "blob_store_full")


@pytest.mark.parametrize("n_bytes", [300_000_000, pytest.param(1_300_000_000, marks=pytest.mark.nightly)])
def test_a_large_blob_never_lies_in_memory(row, claim, n_bytes):
    """What Python holds at most is a few parts, of which the test's own client has two; what the process holds grows by
    no more, whatever the blob's size."""
    block = os.urandom(PART_BYTES)
    n_parts = n_bytes // PART_BYTES + 1
    digest = hashlib.sha256()
    for _ in range(n_parts):
        digest.update(block)
    at = digest.hexdigest(), n_parts * PART_BYTES
    own, began = psutil.Process(), time.monotonic()
    before, largest = own.memory_info().rss, 0
    tracemalloc.start()
    try:
        for number in range(n_parts):
            assert put(claim, number, block, *at).status_code == 204
            largest = max(largest, own.memory_info().rss)
        assert finish(claim, *at).status_code == 201
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    grown = max(largest, own.memory_info().rss) - before
    seconds = time.monotonic() - began
    held = f"Python held {peak / 1e6:.0f} MB at most, the process {grown / 1e6:.0f} MB more than before"
    print(f"{at[1]:,} bytes in {seconds:.1f} s: {held}")
    assert peak < 8 * PART_BYTES
    assert grown < 128_000_000
    assert blobs.blob_size(row.tenant_id, at[0]) == at[1]
    blobs.delete_blob(row.tenant_id, at[0])


# --- checkpoints ----------------------------------------------------------------------------------------------------


def checkpoint_of(row: Compile, step: int) -> str:
    head = CHECKPOINT_MARK + b'{step: %d}"}}' % step
    return put_blob(row.tenant_id, len(head).to_bytes(8, "little") + head)


def test_a_checkpoint_that_the_next_one_supersedes_is_deleted(row, claim):
    first, second = checkpoint_of(row, 1), checkpoint_of(row, 2)
    assert beat(claim, step=1, n_steps=9, checkpoint_sha256=first).status_code == 200
    assert has_blob(row.tenant_id, first)
    assert beat(claim, step=2, n_steps=9, checkpoint_sha256=second).status_code == 200
    assert (has_blob(row.tenant_id, first), has_blob(row.tenant_id, second)) == (False, True)
    assert report(claim).status_code == 204
    assert not has_blob(row.tenant_id, second), "a training that has ended needs none"


def test_a_runner_that_names_another_blob_as_its_checkpoint_deletes_nothing(row, claim):
    other = put_blob(row.tenant_id, b"a data set, or an artifact")
    for digest in (other, checkpoint_of(row, 1)):
        assert beat(claim, step=1, n_steps=9, checkpoint_sha256=digest).status_code == 200
    assert has_blob(row.tenant_id, other)


def test_a_checkpoint_that_another_job_goes_on_from_stays(row, claim):
    first = checkpoint_of(row, 1)
    beat(claim, step=1, n_steps=9, checkpoint_sha256=first)
    job = queue(row)
    RunnerJob.objects.filter(id=job.id).update(checkpoint_sha256=first)
    beat(claim, step=2, n_steps=9, checkpoint_sha256=checkpoint_of(row, 2))
    assert has_blob(row.tenant_id, first)


def test_a_checkpoint_that_was_not_kept_is_a_warning_of_the_compile(row, claim):
    beat(claim, step=7, n_steps=9, unkept="too_large", unkept_bytes=3_000_000_000)
    kept = checkpoint_of(row, 3)
    beat(claim, step=8, n_steps=9, checkpoint_sha256=kept, checkpoint_step=3)
    beat(claim, step=8, n_steps=9, checkpoint_sha256=kept, unkept="store_full", unkept_bytes=5)
    first, second = events(row, "warning")
    assert (first["code"], first["step"]) == ("checkpoint_not_kept", "distillation")
    assert "3,000,000,000 bytes at step 7" in first["message"]
    assert "KOLM_MAX_BLOB_BYTES" in first["message"]
    assert "from its beginning" in first["message"]
    assert "begin again from step 3" in second["message"]
    assert "full" in second["message"]


def test_a_reason_that_is_none_ends_no_lease_and_is_not_shown(row, claim):
    assert beat(claim, step=7, n_steps=9, unkept="<script>", unkept_bytes=3).status_code == 400
    assert beat(claim, step=7, n_steps=9, unkept="refused", unkept_bytes=-1).status_code == 400
    assert events(row, "warning") == []


def test_an_upload_knows_its_parts():
    upload = Upload(owner="x", sha256="0" * 64, n_bytes=20 << 20)
    assert [upload.part_bytes(n) for n in range(-1, 4)] == [0, 8 << 20, 8 << 20, 4 << 20, 0]
    assert [upload.n_whole_parts(n) for n in (0, 1, PART_BYTES, (20 << 20) - 1, 20 << 20)] == [0, 0, 1, 2, 3]
