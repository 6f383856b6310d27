"""Rows that cannot be selected from: each named by its number with what is wrong, and nothing of them stored."""

import io
import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.conf import settings as django_settings

from backend.domain.errors import InvalidInput
from backend.rest.new_ids import new_uuid7
from backend.runner_jobs.models import RunnerJob
from backend.selections import receiving, submission
from backend.selections.options import read_options
from backend.selections.receiving import LineReader, Received, receive_lines
from backend.selections.rows import row_of
from tests.backend.asgi_requests import send_to
from tests.backend.selections.played_runner import lines, post
from tests.cpu_time import cpu_s
from tests.factories import make_api_key, make_tenant

GOOD = {"id": "a", "text": "good", "score": 1, "label": "x"}


@pytest.fixture
def tenant(committed_db: None) -> Any:
    RunnerJob.objects.all().delete()
    return make_tenant()


def left_of(tenant_id: Any) -> list[Path]:
    folder = Path(django_settings.KOLM_BLOB_DIR) / str(tenant_id)
    return [path for path in folder.rglob("*") if path.is_file()]


def receive(data: bytes) -> Received:
    """For a tenant of its own, whose folder must be empty after a refusal."""
    tenant_id = new_uuid7()
    try:
        return receive_lines(tenant_id, new_uuid7(), LineReader(io.BytesIO(data)))
    except InvalidInput:
        assert left_of(tenant_id) == []
        raise


def refusal_of(data: bytes) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        receive(data)
    return caught.value


def first_line_with(**fields: Any) -> bytes:
    return lines([GOOD, GOOD | {"id": "b"} | fields])


@pytest.mark.parametrize(
    ("second", "what"),
    [
        (b"{", "is not JSON"),
        (b'{"text": "a"} x', "is not JSON"),
        (b"\xff\xfe", "is not UTF-8"),
        (b'["a"]', "is no object"),
        (b"17", "is no object"),
        (b"null", "is no object"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"text": ' + b'{"a": ' * 5_000 + b"1" + b"}" * 5_001, "nested too deeply"),
        (b'{"text": "a", "text": "b"}', "key twice"),
        (b'{"text": "a", "score": NaN}', "NaN is no JSON number"),
        (b'{"text": "a", "score": Infinity}', "Infinity is no JSON number"),
        (b'{"text": "a", "score": 1e999}', '"score" is not between'),
        (b'{"text": "a", "score": -1e10}', '"score" is not between'),
        (b'{"text": "a", "score": ' + b"9" * 400 + b"}", '"score" is not between'),
        (b'{"text": "a", "score": ' + b"9" * 5_000 + b"}", "not JSON we take"),
        (b'{"text": "a", "score": "1"}', '"score" is no number'),
        (b'{"text": "a", "score": true}', '"score" is no number'),
        (b'{"id": ' + b"9" * 600 + b', "text": "a"}', '"id" has 600 characters'),
        (b'{"id": "", "text": "a"}', '"id" has 0 characters'),
        (b'{"id": 1.5, "text": "a"}', '"id" is neither'),
        (b'{"id": ["a"], "text": "a"}', '"id" is neither'),
        (b'{"id": "a\\u0000b", "text": "a"}', '"id" has a NUL'),
        (b'{"id": "\\ud800", "text": "a"}', '"id" has half of a surrogate'),
        (b'{"text": "\\udc00 a"}', '"text" has half of a surrogate'),
        (b'{"text": "a\\u0000"}', '"text" has a NUL'),
        (b'{"label": "\\u0000", "text": "a"}', '"label" has a NUL'),
        (b'{"text": ""}', '"text" is empty'),
        (b'{"text": " \\n\\t"}', '"text" is empty'),
        (b'{"text": 3}', '"text" is no text'),
        (b'{"text": "' + b"a" * 4_001 + b'"}', '"text" has 4001 characters'),
        (b"{}", 'neither "text" nor "embedding"'),
        (b'{"text": "a", "embedding": [1]}', 'both "text" and "embedding"'),
        (b'{"text": "a", "scroe": 1}', 'did you mean "score"'),
        (b'{"text": "a", "Vector": [1]}', 'did you mean "embedding"'),
        (b'{"text": "a", "score": 1, "label": "' + b"l" * 201 + b'"}', '"label" has 201 characters'),
    ],
)
def test_a_broken_line_is_named_by_its_number_with_what_is_wrong(second, what):
    error = refusal_of(json.dumps({"text": "good"}).encode() + b"\n" + second + b"\n")
    assert error.code == "invalid_rows"
    assert error.message.startswith("Line 2: ")
    assert what in error.message
    assert [(p.pointer, p.message.startswith("Line 2: ")) for p in error.problems] == [("/2", True)]


@pytest.mark.parametrize(
    ("embedding", "what"),
    [
        ([], "is no list of numbers"),
        ("abc", "is no list of numbers"),
        ({"0": 1}, "is no list of numbers"),
        ([1, 2], "has 2 numbers, that of line 1 has 3"),
        ([1, 2, 3, 4], "has 4 numbers, that of line 1 has 3"),
        ([1, None, 3], "at place 1 that is no number"),
        ([1, "2", 3], "at place 1 that is no number"),
        ([1, True, 3], "at place 1 that is no number"),
        ([1, [2], 3], "at place 1 that is no number"),
        ([0.5] * 4_097, "has 4097 numbers; at most 4096"),
        ([1, 10**400, 2], "not finite"),
    ],
)
def test_an_embedding_that_cannot_be_is_named(embedding, what):
    error = refusal_of(lines([{"embedding": [1, 2, 3]}, {"embedding": embedding}]))
    assert error.message.startswith("Line 2: ")
    assert what in error.message


@pytest.mark.parametrize("number", [b"1e999", b"-1e400"])
def test_an_infinity_that_json_can_spell_is_no_number(number):
    error = refusal_of(b'{"embedding": [1, ' + number + b"]}\n")
    assert "Line 1" in error.message
    assert "not finite" in error.message


@pytest.mark.parametrize("numbers", [[1e300, -2e300], [1e-300, 2e-300], [0, 0], [-0.0, 5e-324]])
def test_any_finite_numbers_are_taken_and_keep_their_direction(numbers):
    tenant_id = new_uuid7()
    receive_lines(tenant_id, new_uuid7(), LineReader(io.BytesIO(lines([{"embedding": numbers}]))))
    sizes = [path for path in left_of(tenant_id) if path.stat().st_size == 16 + 8]
    kept = np.frombuffer(sizes[0].read_bytes(), dtype="<f4", offset=16)
    largest = max(map(abs, numbers))
    np.testing.assert_allclose(kept, np.array(numbers) / (largest or 1.0), rtol=1e-6)


def test_fields_of_others_are_passed_over_at_little_cost():
    others = {name: 1 for i in range(100_000) for name in (f"scr{i}", f"lable{i}")}
    row = {"text": "a", "score": 1} | others
    assert row_of(row).score == 1
    assert cpu_s(lambda: row_of(row)) < 2  # some 0.1 s; compared one by one, 10 s


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"id": "a"}, "its id 'a' is that of line 1 too"),
        ({"score": None}, 'no "score" and line 1 has one'),
        ({"label": None}, 'no "label" and line 1 has one'),
        ({"text": None, "embedding": [1]}, 'no "text" and line 1 has one'),
    ],
)
def test_what_one_row_has_all_have_and_no_id_is_there_twice(fields, what):
    error = refusal_of(first_line_with(**fields))
    assert error.message.startswith("Line 2: ")
    assert what in error.message


def test_a_line_number_that_is_another_lines_id_is_a_duplicate_too():
    assert "'2' is that of line 1 too" in refusal_of(lines([{"id": "2", "text": "a"}, {"text": "b"}])).message


def test_up_to_fifty_problems_are_told_at_once():
    rows = [{"text": "a"}] + [{"text": ""}] * 3 + [{"text": "b"}] + [{"text": 1}] * 60
    error = refusal_of(lines(rows))
    assert [problem.pointer for problem in error.problems] == ["/2", "/3", "/4", *(f"/{n}" for n in range(6, 53))]
    assert "At least 50 row(s)" in error.message


@pytest.mark.parametrize("data", [b"", b"\n\n  \n", b"\xef\xbb\xbf"])
def test_no_rows_are_said_to_be_none(data):
    assert refusal_of(data).code == "invalid_rows"


@pytest.mark.nightly
def test_a_hundred_thousand_rows_fit_and_one_more_does_not():
    data = b'{"text": "a"}\n' * 100_000
    assert receive(data).n == 100_000
    error = refusal_of(data + b'{"text": "a"}\n')
    assert error.code == "too_many_candidates"
    assert "more than 100,000 rows (line 100001)" in error.message


def test_more_numbers_than_fit_are_refused_with_the_rows_that_would(monkeypatch):
    monkeypatch.setattr(receiving, "MAX_NUMBERS", 10)
    error = refusal_of(lines([{"embedding": [1, 2, 3]}] * 4))
    assert (error.code, "3 rows of this width fit" in error.message) == ("too_many_candidates", True)


def test_endless_blank_lines_end():
    assert refusal_of(b"\n" * 300_000).code == "too_many_candidates"


class Endless(io.RawIOBase):
    """A line of `n` bytes that nobody had to hold, then a good one."""

    def __init__(self, n: int) -> None:
        self._left, self._then = n, io.BytesIO(b'\n{"text": "b"}\n')

    def readline(self, size: int | None = -1) -> bytes:
        if self._left:
            n = min(size or 0, self._left)
            self._left -= n
            return b"a" * n
        return self._then.readline(size or -1)


def test_a_line_of_a_hundred_megabytes_is_named_and_never_held():
    tracemalloc.start()
    with pytest.raises(InvalidInput) as caught:
        receive_lines(new_uuid7(), new_uuid7(), LineReader(Endless(100_000_000)))  # type: ignore[arg-type]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "Line 1: it has more than 262,144 bytes" in caught.value.message
    assert len(caught.value.problems) == 1, "the next line is read as one of its own"
    assert peak < 5_000_000


class Generated(io.RawIOBase):
    """Lines that are made as they are read."""

    def __init__(self, made: Iterator[bytes]) -> None:
        self._made = made

    def readline(self, size: int | None = -1) -> bytes:
        return next(self._made, b"")


@pytest.mark.nightly
def test_embeddings_pass_through_without_being_held():
    """4,000 x 384 numbers are 6 MB as float32 and 50 MB as Python has them."""
    rng = np.random.default_rng(0)
    made = (json.dumps({"id": i, "embedding": rng.normal(size=384).tolist()}).encode() for i in range(4_000))
    tenant_id = new_uuid7()
    tracemalloc.start()
    received = receive_lines(tenant_id, new_uuid7(), LineReader(Generated(made)))  # type: ignore[arg-type]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (received.n, received.width) == (4_000, 384)
    assert peak < 2_500_000
    received.forget()
    assert left_of(tenant_id) == []


# --- options --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("k=-1", "/k"),
        ("k=1.5", "/k"),
        ("k=", "/k"),
        ("k=١x", "/k"),
        ("k=1e3", "/k"),
        ("k_share=2", "/k_share"),
        ("k_share=nan", "/k_share"),
        ("k=1&k_share=0.5", "/k_share"),
        ("diversity_lambda=nan", "/diversity_lambda"),
        ("diversity_lambda=inf", "/diversity_lambda"),
        ("diversity_lambda=-0.1", "/diversity_lambda"),
        ("min_distance=2.1", "/min_distance"),
        ("overcluster=0.5", "/overcluster"),
        ("method=best", "/method"),
        ("linkage=single", "/linkage"),
        ("penalty=%00", "/penalty"),
        ("stratify=perhaps", "/stratify"),
        ("seed=-1", "/seed"),
        ("seed=" + "9" * 400, "/seed"),
        ("lambda=1", "/lambda"),
        ("rows=1", "/rows"),
    ],
)
def test_an_option_that_cannot_be_is_refused_by_its_name(tenant, query, pointer):
    answer = post(make_api_key(tenant), lines([GOOD]), query=f"?{query}")
    assert answer.status_code == 400, answer.content
    assert pointer in [error["pointer"] for error in answer.json()["errors"]]
    assert left_of(tenant.id) == []
    assert not RunnerJob.objects.filter(tenant_id=tenant.id).exists()


@pytest.mark.parametrize("floor", [1, -0.1, 5])
def test_a_floor_is_a_share_below_one(floor):
    with pytest.raises(InvalidInput):
        read_options({"score_floor": floor})


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"rows": []},
        {"rows": "a"},
        {"rows": None},
        {"rows": [{"text": "a"}], "k": -1},
        {"rows": [{"text": "a"}], "k": True},
        {"rows": [{"text": "a"}], "diversity_lambda": True},
        {"rows": [{"text": "a"}], "options": {}},
        {"rows": [{"text": "a"}, {"embedding": [1]}]},
        {"rows": [{"text": "a"}, None]},
        {"rows": [[]]},
    ],
)
def test_a_json_body_that_cannot_be_is_refused_and_leaves_nothing(tenant, body):
    answer = post(make_api_key(tenant), body)
    assert answer.status_code == 400, answer.content
    assert left_of(tenant.id) == []
    assert not RunnerJob.objects.filter(tenant_id=tenant.id).exists()


def test_rows_of_a_json_body_are_named_by_pointer(tenant):
    error = post(make_api_key(tenant), {"rows": [{"text": "a"}, {"text": ""}]}).json()
    assert (error["code"], error["errors"][0]["pointer"]) == ("invalid_rows", "/rows/1")


def test_complete_linkage_has_a_limit_of_its_own(tenant, monkeypatch):
    monkeypatch.setattr(submission, "MAX_COMPLETE_ROWS", 2)
    secret = make_api_key(tenant)
    rows = [{"text": str(i)} for i in range(3)]
    refused = post(secret, rows, query="?linkage=complete")
    assert (refused.status_code, refused.json()["code"]) == (400, "too_many_candidates")
    assert left_of(tenant.id) == []
    assert post(secret, rows).status_code == 202


# --- the door -------------------------------------------------------------------------------------------------------


def knock(*parts: bytes, content_type: str, length: str, **more: str) -> tuple[int, Any]:
    """What the real application answers to a body announced like this, by somebody with a key."""
    from backend.asgi import application

    headers = {"content_type": content_type, "content_length": length, **more}
    status, _, body = send_to(application, *parts, path="/v1/select", **headers)
    return status, json.loads(body)


@pytest.mark.parametrize("content_type", ["application/x-ndjson", "application/jsonl; charset=utf-8"])
def test_ten_gigabytes_are_refused_up_front_with_the_limit(content_type):
    status, problem = knock(b"", content_type=content_type, length="10000000000")
    assert (status, problem["code"]) == (413, "payload_too_large")
    assert f"{django_settings.KOLM_SELECT_BODY_BYTES:,} bytes" in problem["detail"]


def test_the_larger_limit_is_for_lines_at_this_address_alone():
    status, problem = knock(b"", content_type="application/json", length="2000000")
    assert (status, "1,000,000 bytes" in problem["detail"]) == (413, True)


def test_a_body_shorter_than_announced_is_not_taken_for_whole(tenant):
    key = f"Bearer {make_api_key(tenant)}"
    status, problem = knock(lines([GOOD]), content_type="application/x-ndjson", length="4000", authorization=key)
    assert (status, problem["code"]) == (400, "incomplete_body")
    assert left_of(tenant.id) == []


def test_a_file_may_begin_with_a_byte_order_mark():
    assert receive(b"\xef\xbb\xbf" + lines([GOOD])).n == 1


@pytest.mark.parametrize("content_type", ["text/csv", "application/octet-stream", "multipart/form-data; boundary=x"])
def test_other_types_are_not_taken(tenant, client, content_type):
    headers = {"Authorization": f"Bearer {make_api_key(tenant)}"}
    answer = client.generic("POST", "/v1/select", b"a,b", content_type=content_type, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")
