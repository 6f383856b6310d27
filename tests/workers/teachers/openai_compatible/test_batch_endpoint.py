"""Files and Batches over HTTP, against a strict double of them."""

from collections.abc import Iterator

import pytest

from backend.domain.dialects.batches import OPENAI_BATCHES
from backend.domain.dialects.table import BY_NAME as DIALECTS
from tests.workers.teachers.batch_vendor import KEY, BatchVendor, Job, serving_batches
from tests.workers.teachers.strict_vendors import BY_NAME
from workers.teachers.openai_compatible.batch_endpoint import PAGE, BatchEndpoint
from workers.teachers.openai_compatible.batch_lines import BatchRequest
from workers.teachers.openai_compatible.teacher import OpenAICompatibleTeacher
from workers.teachers.protocol import CompletionRequest, Message, TeacherCaps, TeacherFailed, TeacherIdentity

REQUEST = CompletionRequest(messages=(Message(role="user", content="hello"),))


@pytest.fixture
def vendor() -> Iterator[BatchVendor]:
    with serving_batches(BY_NAME["openai"], lambda asked, n: ["refund"] * n) as batches:
        yield batches


@pytest.fixture
def endpoint(vendor: BatchVendor) -> Iterator[BatchEndpoint]:
    made = endpoint_of(vendor)
    yield made
    made.teacher.close()


def endpoint_of(vendor: BatchVendor, *, key: str = KEY) -> BatchEndpoint:
    teacher = OpenAICompatibleTeacher(
        identity=TeacherIdentity(provider="openai_compatible", model="gpt-4o-mini"),
        base_url=vendor.base_url,
        api_key=key,
        caps=TeacherCaps(),
        dialect=DIALECTS["openai"],
        allowed_origins=frozenset({vendor.base_url.removesuffix("/v1")}),
    )
    return BatchEndpoint(teacher, OPENAI_BATCHES, is_lost=lambda: False)


def file_of(endpoint: BatchEndpoint, *names: str) -> bytes:
    body = endpoint.teacher.body_of(REQUEST, ())
    return b"".join(BatchRequest(name=n, request=REQUEST, body=body).line(endpoint.terms.url) for n in names)


def test_a_file_becomes_a_job_and_its_answers(vendor: BatchVendor, endpoint: BatchEndpoint) -> None:
    job = endpoint.create(endpoint.upload(file_of(endpoint, "a", "b")), "ours")
    assert (job.status, job.n_total) == ("validating", 2)
    assert endpoint.get(job.id).status == "in_progress"
    done = endpoint.get(job.id)
    assert done.has_ended
    assert (done.n_done, done.n_failed, done.error_file) == (2, 0, "")
    assert len(list(endpoint.rows(done.output_file, cap=100_000))) == 2


def test_a_job_is_found_by_its_file_among_many(vendor: BatchVendor, endpoint: BatchEndpoint) -> None:
    file = endpoint.upload(file_of(endpoint, "a"))
    assert endpoint.find(file) is None
    made = endpoint.create(file, "ours")
    other = endpoint.upload(file_of(endpoint, "z"))
    vendor.jobs += [Job(f"batch_x{i}", other, {}) for i in range(2 * PAGE)]
    found = endpoint.find(file)
    assert found is not None
    assert found.id == made.id


def test_a_file_beyond_its_bound_is_not_read(vendor: BatchVendor, endpoint: BatchEndpoint) -> None:
    vendor.files["file-big"] = b"x" * 5_000
    with pytest.raises(TeacherFailed) as failed:
        list(endpoint.rows("file-big", cap=4_000))
    assert failed.value.code == "teacher_too_large"


@pytest.mark.parametrize("id", ["../files", "a/b", "", "a" * 201, None, 7, "é"])
def test_an_id_that_is_no_id_becomes_no_address(vendor: BatchVendor, endpoint: BatchEndpoint, id: object) -> None:
    vendor.refuses["POST /files"] = (200, {"id": id})
    with pytest.raises(TeacherFailed) as failed:
        endpoint.upload(b"{}")
    assert failed.value.code == "teacher_protocol"


def test_a_wrong_key_is_told_as_it_is_live(vendor: BatchVendor) -> None:
    refused = endpoint_of(vendor, key="sk-wrong")
    with pytest.raises(TeacherFailed, match="it refuses the API key") as failed:
        refused.find("file-1")
    assert failed.value.code == "teacher_rejected"
    assert "sk-wrong" not in str(failed.value)
    refused.teacher.close()


def test_a_status_that_nobody_knows_is_not_the_end(vendor: BatchVendor, endpoint: BatchEndpoint) -> None:
    vendor.refuses["GET /batches/b"] = (200, {"id": "b", "status": "resting", "request_counts": {"total": -4}})
    job = endpoint.get("b")
    assert (job.status, job.has_ended, job.n_total) == ("in_progress", False, 0)
