"""POST /v1/select and what hangs on a selection, with a runner played through the lease API."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asgiref.sync import async_to_sync
from django.conf import settings as django_settings
from django.test import Client

from backend.blobs import get_blob, get_json, has_blob, sweep_unfinished
from backend.domain.ids import Prefix, decode_id
from backend.domain.jobs.runner_jobs import ROWS_OFFSET, Progress, RunnerJobKind, SelectJob
from backend.runner_jobs import api as runner_api
from backend.runner_jobs import leases
from backend.runner_jobs.models import RunnerJob, RunnerJobStatus
from backend.selections import preferences, submission
from backend.selections.models import Selection
from backend.tenants.isolation import tenant_scope
from backend.usage.models import UsageFact
from tests.backend.selections.played_runner import best_scores, get, lines, post, runner, work_on_next
from tests.factories import bearer, make_api_key, make_tenant

pytestmark = pytest.mark.usefixtures("committed_db")

TEXTS = [{"id": f"t{i}", "text": f"text number {i}", "score": i / 10} for i in range(9)]
POINTS = [{"embedding": [i, 2.0, -1], "score": -i} for i in range(6)]


@pytest.fixture
def tenant(committed_db: None) -> Any:
    RunnerJob.objects.all().delete()
    return make_tenant()


@pytest.fixture
def secret(tenant: Any) -> str:
    return make_api_key(tenant)


def stored(tenant: Any, answer: Any) -> Selection:
    with tenant_scope(tenant.id):
        return Selection.objects.get(id=decode_id(Prefix.SELECTION, answer.json()["id"]))


def job_of(row: Selection) -> RunnerJob:
    return RunnerJob.objects.get(id=row.runner_job_id)


def payload_of(tenant: Any, answer: Any) -> SelectJob:
    return SelectJob.from_json(get_json(tenant.id, job_of(stored(tenant, answer)).payload_sha256))


def test_a_result_that_is_there_in_time_is_the_answer(secret):
    with runner():
        answer = post(secret, TEXTS, wait=10)
    body = answer.json()
    assert (answer.status_code, body["status"], body["n"], body["k"]) == (201, "succeeded", 9, 3)
    assert [pick["id"] for pick in body["picks"]["data"]] == ["t8", "t7", "t6"]
    assert body["picks"]["data"][0] == {
        "rank": 1,
        "id": "t8",
        "score": 0.8,
        "cluster": 8,
        "nearest_pick_ppm": 250_000,
    }
    assert body["report"] == {"method": "top_k", "n": 9, "k_actual": 3}
    assert (body["cohesion_log"], body["embedder"]) == ("slice all rows", "minilm@sha256:0")
    assert answer.headers["Location"] == f"/v1/select/{body['id']}"
    assert get(secret, f"/v1/select/{body['id']}").json() == body


def test_without_a_runner_the_answer_is_the_queued_selection_after_the_wait_asked_for(secret):
    answer = post(secret, TEXTS, wait=1)
    assert (answer.status_code, answer.json()["status"]) == (202, "queued")
    assert answer.headers["Preference-Applied"] == "wait=1"
    assert answer.json()["picks"] is None
    assert get(secret, f"{answer.headers['Location']}/picks").json()["code"] == "no_result"


@pytest.mark.parametrize(
    ("header", "wait_s"),
    [
        ("wait=3", 3),
        ("wait=99", 25),
        ("respond-async", 0),
        ("handling=lenient, wait=2", 2),
        ('wait="4"', 4),
        ("wait=2; x=y", 2),
        ("", 10),
        ("wait=-1", 10),
        ("wait=1.5", 10),
        ("wait=" + "9" * 400, 25),
        ("wait", 10),
        ("wait=٣", 10),
    ],
)
def test_how_long_a_request_waits_is_the_clients_wish_within_bounds(header, wait_s, rf):
    assert preferences.preferred_wait_s(rf.post("/v1/select", headers={"Prefer": header})) == wait_s


def test_texts_and_embeddings_reach_the_runner_as_they_were_sent(tenant, secret):
    texts = post(secret, [{"text": "a b"}, {"text": "line\nbreak, snow: ☃"}], query="?k=1")
    job = payload_of(tenant, texts)
    first, *rows = get_blob(tenant.id, job.rows_sha256).decode().split("\n")[:-1]
    assert [json.loads(row) for row in rows] == ["a b", "line\nbreak, snow: ☃"]
    assert json.loads(first) == texts.json()["id"]
    assert get_json(tenant.id, job.columns_sha256)["ids"] == ["1", "2"]

    points = post(secret, POINTS)
    job, row = payload_of(tenant, points), stored(tenant, points)
    data = get_blob(tenant.id, job.rows_sha256)
    assert data[:ROWS_OFFSET] == row.id.bytes
    sent = np.array([point["embedding"] for point in POINTS], dtype=np.float64)
    kept = np.frombuffer(data, dtype="<f4", offset=ROWS_OFFSET).reshape(job.n, job.width)
    np.testing.assert_allclose(kept, sent / np.abs(sent).max(axis=1, keepdims=True), rtol=1e-6)
    assert (job.n, job.width, job.k) == (6, 3, 2)
    assert get_json(tenant.id, job.columns_sha256)["scores"] == [0, -1, -2, -3, -4, -5]
    assert job_of(row).inputs == [job.columns_sha256, job.rows_sha256]


def test_options_come_from_the_query_with_lines_and_from_the_body_with_json(tenant, secret):
    query = "?k_share=0.5&method=diverse&diversity_lambda=0.25&stratify=false&score_floor=0.1&seed=3"
    options = {"k_share": 0.5, "method": "diverse", "diversity_lambda": 0.25, "stratify": False}
    options |= {"score_floor": 0.1, "seed": 3}
    by_query, by_body = post(secret, TEXTS, query=query), post(secret, {"rows": TEXTS, **options})
    assert by_query.json()["options"] == by_body.json()["options"]
    assert by_query.json()["options"] == {
        "method": "diverse",
        "linkage": "average",
        "score_floor": 0.1,
        "diversity_lambda": 0.25,
        "penalty": "nearest",
        "min_distance": 0.0,
        "overcluster": 1.0,
        "seed": 3,
        "stratify": False,
    }
    assert (by_query.json()["k"], by_body.json()["k"]) == (5, 5)
    assert payload_of(tenant, by_query).options == by_query.json()["options"]


def test_traffic_is_named_to_the_runner_and_to_no_older_one_that_does_not_know_the_word(tenant, secret):
    by_query, by_body = post(secret, TEXTS, query="?is_traffic=true"), post(secret, {"rows": TEXTS, "is_traffic": True})
    assert by_query.json()["options"]["is_traffic"] is by_body.json()["options"]["is_traffic"] is True
    assert payload_of(tenant, by_body).options["is_traffic"] is True
    assert "is_traffic" not in payload_of(tenant, post(secret, TEXTS)).options


@pytest.mark.parametrize(
    ("options", "k"), [({}, 3), ({"k": 2}, 2), ({"k": 40}, 40), ({"k_share": 0.07}, 1), ({"k": 0}, 0), ({"k": 2.0}, 2)]
)
def test_k_is_a_third_unless_said_otherwise_and_may_be_more_than_there_are(secret, options, k):
    answer = post(secret, {"rows": TEXTS, **options})
    assert (answer.status_code, answer.json()["k"]) == (202, k)


def test_a_file_from_elsewhere_may_have_fields_of_its_own_and_numbers_for_ids(tenant, secret):
    rows = [{"id": 17, "text": "a", "lang": "en", "meta": {"deep": [1]}}, {"id": 18, "text": "b", "label": 3}]
    rows[0]["label"] = 4
    answer = post(secret, b"\n" + lines(rows[:1]) + b"  \r\n" + lines(rows[1:]).rstrip())
    assert answer.status_code == 202
    columns = get_json(tenant.id, payload_of(tenant, answer).columns_sha256)
    assert (columns["ids"], columns["labels"], columns["scores"]) == (["17", "18"], ["4", "3"], None)


def test_picks_and_rows_are_read_page_by_page_or_as_lines(secret):
    with runner():
        path = post(secret, TEXTS, query="?k=5", wait=10).headers["Location"]
    first = get(secret, f"{path}/picks?limit=2").json()
    assert ([row["rank"] for row in first["data"]], first["has_more"], first["next_cursor"]) == ([1, 2], True, "2")
    last = get(secret, f"{path}/picks?limit=3&after=2").json()
    assert ([row["rank"] for row in last["data"]], last["has_more"], last["next_cursor"]) == ([3, 4, 5], False, None)
    everything = get(secret, f"{path}/rows").json()["data"]
    assert [row["id"] for row in everything] == [row["id"] for row in TEXTS]
    assert [row["state"] for row in everything] == ["dropped"] * 4 + ["picked"] * 5
    assert [row["rank"] for row in everything] == [None] * 4 + [5, 4, 3, 2, 1]
    download = get(secret, f"{path}/picks?format=jsonl")
    assert download.headers["Content-Type"] == "application/x-ndjson"
    told = [json.loads(line) for line in download.content.splitlines()]
    assert told == first["data"] + last["data"]


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "after=-1", "after=x", "format=csv", "page=2"])
def test_a_page_that_cannot_be_is_refused(secret, query):
    with runner():
        path = post(secret, TEXTS, wait=10).headers["Location"]
    assert get(secret, f"{path}/picks?{query}").status_code == 400


def test_the_list_has_every_selection_without_its_picks(secret):
    ids = [post(secret, TEXTS).json()["id"] for _ in range(3)]
    work_on_next()
    listed = get(secret, "/v1/select?limit=2").json()
    assert [row["id"] for row in listed["data"]] == ids[:0:-1]
    assert "picks" not in listed["data"][0]
    rest = get(secret, f"/v1/select?after={listed['next_cursor']}").json()
    assert [(row["id"], row["status"]) for row in rest["data"]] == [(ids[0], "succeeded")]


def test_progress_is_what_the_runner_last_said_in_words_of_ours(tenant, secret):
    answer = post(secret, TEXTS)
    claim = leases.claim("r1", [RunnerJobKind.SELECT])
    job_id = decode_id(Prefix.RUNNER_JOB, claim.job_id)
    progress = Progress(step=3, n_steps=9, loss=None, eta_s=None, checkpoint_sha256=None, note="embedding")
    assert leases.heartbeat(job_id, claim.token, progress).cancel is False
    shown = get(secret, answer.headers["Location"]).json()
    assert (shown["status"], shown["progress"]) == ("running", {"stage": "embedding", "done": 3, "total": 9})
    told = Progress(step=4, n_steps=9, loss=None, eta_s=None, checkpoint_sha256=None, note="text number 4")
    leases.heartbeat(job_id, claim.token, told)
    assert get(secret, answer.headers["Location"]).json()["progress"] == {"stage": None, "done": 4, "total": 9}


def test_the_bill_has_the_rows_and_the_tokens_once(tenant, secret):
    with runner():
        body = post(secret, TEXTS, wait=10).json()
    for _ in range(2):
        get(secret, f"/v1/select/{body['id']}")
    with tenant_scope(tenant.id):
        facts = {fact.sku: fact for fact in UsageFact.objects.all()}
    assert set(facts) == {"runner.select_job", "runner.select_row", "embedding.token"}
    assert facts["runner.select_row"].quantity == len(TEXTS)
    assert {(fact.step, fact.billing) for fact in facts.values()} == {("select", "charge")}
    assert facts["embedding.token"].quantity == 36
    assert body["cost_microusd"] == sum(fact.amount_microusd for fact in facts.values())


def test_the_same_request_with_one_idempotency_key_is_one_selection(tenant, secret):
    headers = {"Idempotency-Key": "one"}
    first, again = (post(secret, TEXTS, query="?k=2", **headers) for _ in range(2))
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json()["id"] == again.json()["id"]
    assert again.headers["Idempotent-Replayed"] == "true"
    other = post(secret, TEXTS[:-1], query="?k=2", **headers)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reuse")
    assert post(secret, TEXTS, query="?k=3", **headers).json()["code"] == "idempotency_key_reuse"
    with tenant_scope(tenant.id):
        assert Selection.objects.count() == 1
    row = stored(tenant, first)
    assert blobs_of(tenant) == {row.columns_sha256, row.rows_sha256, job_of(row).payload_sha256}


def blobs_of(tenant: Any) -> set[str]:
    """Every file in the tenant's folder of the blob store."""
    folder = Path(django_settings.KOLM_BLOB_DIR) / str(tenant.id)
    return {path.name for path in folder.rglob("*") if path.is_file()}


def test_two_selections_of_the_same_rows_share_nothing_that_could_be_deleted_twice(tenant, secret):
    first, second = (stored(tenant, post(secret, TEXTS)) for _ in range(2))
    assert not {first.rows_sha256, first.columns_sha256} & {second.rows_sha256, second.columns_sha256}


def test_a_tenants_queue_has_an_end_and_another_tenants_is_another(tenant, secret, monkeypatch):
    monkeypatch.setattr(submission, "MAX_OPEN", 2)
    assert [post(secret, TEXTS).status_code for _ in range(2)] == [202, 202]
    refused = post(secret, TEXTS)
    assert (refused.status_code, refused.json()["code"]) == (429, "too_many_selections")
    assert refused.headers["Retry-After"] == "10"
    assert post(make_api_key(make_tenant()), TEXTS).status_code == 202
    work_on_next()
    assert post(secret, TEXTS).status_code == 202


def test_what_a_killed_upload_left_is_swept(tenant, secret):
    folder = Path(django_settings.KOLM_BLOB_DIR) / str(tenant.id)
    folder.mkdir(parents=True)
    old, new = folder / "unfinished-old", folder / "unfinished-new"
    for path in (old, new):
        path.write_bytes(b"rows")
    os.utime(old, (0, 0))
    sweep_unfinished()
    assert (old.exists(), new.exists()) == (False, True)


# --- ends -----------------------------------------------------------------------------------------------------------


def test_a_queued_selection_is_canceled_at_once_and_a_running_one_when_its_runner_hears_of_it(tenant, secret):
    queued, running = post(secret, TEXTS), post(secret, TEXTS)
    RunnerJob.objects.filter(id=stored(tenant, queued).runner_job_id).update(status=RunnerJobStatus.SUCCEEDED)
    claim = leases.claim("r1", [RunnerJobKind.SELECT])
    RunnerJob.objects.filter(id=stored(tenant, queued).runner_job_id).update(status=RunnerJobStatus.QUEUED)
    cancels = [Client().post(f"{a.headers['Location']}/cancel", headers=bearer(secret)) for a in (queued, running)]
    assert [answer.status_code for answer in cancels] == [202, 202]
    assert [answer.json()["status"] for answer in cancels] == ["canceled", "running"]
    job_id = decode_id(Prefix.RUNNER_JOB, claim.job_id)
    progress = Progress(step=0, n_steps=0, loss=None, eta_s=None, checkpoint_sha256=None, note="")
    assert leases.heartbeat(job_id, claim.token, progress).cancel is True
    leases.report_failure(job_id, claim.token, code="canceled", message="The job was cancelled.", is_retryable=False)
    ended = get(secret, running.headers["Location"]).json()
    assert (ended["status"], ended["failure"], ended["cost_microusd"]) == ("canceled", None, 0)
    with tenant_scope(tenant.id):
        assert [fact.billing for fact in UsageFact.objects.all()] == ["waste"]


def test_a_selection_that_has_ended_cannot_be_canceled(secret):
    with runner():
        answer = post(secret, TEXTS, wait=10)
    refused = Client().post(f"{answer.headers['Location']}/cancel", headers=bearer(secret))
    assert (refused.status_code, refused.json()["code"]) == (409, "selection_ended")


def test_a_failure_says_why_and_costs_nothing(tenant, secret):
    answer = post(secret, TEXTS)
    for _ in range(leases.MAX_ATTEMPTS):
        claim = leases.claim("r1", [RunnerJobKind.SELECT])
        key = (decode_id(Prefix.RUNNER_JOB, claim.job_id), claim.token)
        leases.report_failure(*key, code="runner_killed", message="It was killed.", is_retryable=True)
    body = get(secret, answer.headers["Location"]).json()
    assert (body["status"], body["failure"]) == ("failed", {"code": "runner_killed", "message": "It was killed."})
    assert body["cost_microusd"] == 0
    with tenant_scope(tenant.id):
        assert {fact.billing for fact in UsageFact.objects.all()} == {"waste"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"picks": [0, 0, 1]},
        {"picks": [0, 1, 9]},
        {"picks": [0, 1, -1]},
        {"picks": [0, 1, 2, 3]},
        {"picks": [0, 1, True]},
        {"nearest_pick_ppm": [1]},
        {"cluster_of": [0]},
        {"cluster_of": [-2] * 9},
        {"floor_dropped": [8]},
        {"report": {"mean_score": 0.5}},
        {"report": {"note": "\x00"}},
        {"report": {"mean_score_ppm": 2**53}},
        {"log": 7},
        {"n_tokens": 10**9},
        {"runner_ms": -1},
        {"surprise": 1},
    ],
)
def test_a_result_that_cannot_be_one_is_a_failure_of_ours_and_its_time_is_waste(tenant, secret, wrong):
    answer = post(secret, TEXTS)
    work_on_next(lambda tenant_id, job: best_scores(tenant_id, job) | wrong)
    body = get(secret, answer.headers["Location"]).json()
    assert (body["status"], body["failure"]["code"], body["cost_microusd"]) == ("failed", "runner_bad_result", 0)
    with tenant_scope(tenant.id):
        assert {fact.billing for fact in UsageFact.objects.all()} == {"waste"}


def test_deleting_takes_rows_result_and_job_along(tenant, secret):
    with runner():
        answer = post(secret, TEXTS, wait=10)
    assert len(blobs_of(tenant)) == 4
    gone = Client().delete(answer.headers["Location"], headers=bearer(secret))
    assert gone.status_code == 204
    assert get(secret, answer.headers["Location"]).status_code == 404
    assert blobs_of(tenant) == set()
    assert not RunnerJob.objects.filter(tenant_id=tenant.id).exists()
    with tenant_scope(tenant.id):
        assert UsageFact.objects.count() == 3, "what was used stays on the bill"


def test_deleting_a_running_selection_takes_the_job_from_its_runner(tenant, secret):
    answer = post(secret, TEXTS)
    claim = leases.claim("r1", [RunnerJobKind.SELECT])
    assert Client().delete(answer.headers["Location"], headers=bearer(secret)).status_code == 204
    with pytest.raises(leases.JobGone):
        leases.report_success(decode_id(Prefix.RUNNER_JOB, claim.job_id), claim.token, {})
    assert blobs_of(tenant) == set()


# --- who may --------------------------------------------------------------------------------------------------------


def test_another_tenants_selection_is_not_there(secret):
    with runner():
        path = post(secret, TEXTS, wait=10).headers["Location"]
    stranger = make_api_key(make_tenant())
    for suffix in ("", "/picks", "/rows"):
        assert get(stranger, path + suffix).status_code == 404
    assert Client().post(f"{path}/cancel", headers=bearer(stranger)).status_code == 404
    assert Client().delete(path, headers=bearer(stranger)).status_code == 404
    assert get(stranger, "/v1/select").json()["data"] == []
    assert get(secret, path).status_code == 200


def test_reading_and_asking_need_the_scopes_of_compiles(tenant, secret):
    reader = make_api_key(tenant, scopes=["compiles:read"])
    path = post(secret, TEXTS).headers["Location"]
    assert get(reader, path).status_code == 200
    assert post(reader, TEXTS).json()["code"] == "missing_scope"
    assert Client().delete(path, headers=bearer(reader)).status_code == 403
    assert get(make_api_key(tenant, scopes=["drafts:read"]), path).status_code == 403


def test_a_runner_gets_the_rows_with_its_token_and_nothing_else(tenant, secret, settings):
    answer = post(secret, POINTS)
    claim = leases.claim("r1", [RunnerJobKind.SELECT])
    row = stored(tenant, answer)
    path = f"/internal/runner/jobs/{claim.job_id}/blobs/"
    headers = {"Authorization": f"Bearer {claim.token}"}
    assert Client().get(path + row.rows_sha256, headers=headers).content == get_blob(tenant.id, row.rows_sha256)
    assert Client().get(path + job_of(row).payload_sha256, headers=headers).status_code == 404
    assert has_blob(tenant.id, row.columns_sha256)


def test_a_large_blob_is_sent_in_parts_and_whole(tenant, secret, monkeypatch, async_client):
    monkeypatch.setattr(runner_api, "WHOLE_BLOB_BYTES", 10)
    row = stored(tenant, post(secret, POINTS))
    claim = leases.claim("r1", [RunnerJobKind.SELECT])
    path = f"/internal/runner/jobs/{claim.job_id}/blobs/{row.rows_sha256}"

    async def read() -> tuple[str, list[bytes]]:
        answer = await async_client.get(path, headers={"Authorization": f"Bearer {claim.token}"})
        assert answer.streaming
        return answer.headers["Content-Length"], [part async for part in answer.streaming_content]

    length, parts = async_to_sync(read)()
    assert b"".join(parts) == get_blob(tenant.id, row.rows_sha256)
    assert int(length) == ROWS_OFFSET + 6 * 3 * 4
