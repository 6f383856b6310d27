"""What must be refused with a clear error, at the door and with nothing kept."""

import copy
import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.acceptance.deployment import Customer
from tests.acceptance.specs import LABELS, asks, small_spec

Spec = dict[str, Any]


def misspelt_key(spec: Spec) -> None:
    spec["sampling"]["n_candidate"] = spec["sampling"].pop("n_candidates")


def misspelt_part(spec: Spec) -> None:
    spec["budgte"] = {"usd": 5}


def empty_task(spec: Spec) -> None:
    spec["task"] = "  "


def duplicate_labels(spec: Spec) -> None:
    spec["output"]["labels"].append(spec["output"]["labels"][0])


def shares_that_do_not_sum(spec: Spec) -> None:
    spec["slices"][0]["share"] = 0.9


def one_example(spec: Spec) -> None:
    spec["examples"]["inline"] = spec["examples"]["inline"][:1]


def no_gold_for_a_label(spec: Spec) -> None:
    spec["examples"]["inline"] = [row for row in spec["examples"]["inline"] if row["output"] != LABELS[0]]


def k_above_n(spec: Spec) -> None:
    spec["sampling"] |= {"n_candidates": 4, "k_select": 5}


def no_candidates(spec: Spec) -> None:
    spec["sampling"]["n_candidates"] = 0


def negative_lambda(spec: Spec) -> None:
    spec["sampling"]["diversity_lambda"] = -0.1


def teacher_of_the_cloud(spec: Spec) -> None:
    spec["teacher"] = asks("https://169.254.169.254/v1", "steady")


def teacher_next_door(spec: Spec) -> None:
    spec["teacher"] = asks("https://10.0.0.5:8443/v1", "steady")


def teacher_without_tls(spec: Spec) -> None:
    spec["teacher"] = asks("http://llm.example.com/v1", "steady")


def unknown_price(spec: Spec) -> None:
    spec["teacher"] = {"provider": "grammar", "model": "gpt-nobody-knows"}


def json_output(spec: Spec) -> None:
    spec["output"] = {"type": "json", "schema": {"type": "object"}}


# what is wrong, where the problem points, a word that helps
CASES: list[tuple[Callable[[Spec], None], str, str]] = [
    (misspelt_key, "/sampling/n_candidate", "n_candidates"),
    (misspelt_part, "/budgte", "budget"),
    (empty_task, "/task", ""),
    (duplicate_labels, "/output/labels", LABELS[0]),
    (shares_that_do_not_sum, "/slices", "1"),
    (one_example, "/examples", ""),
    (no_gold_for_a_label, "/examples", LABELS[0]),
    (k_above_n, "/sampling/k_select", "4"),
    (no_candidates, "/sampling/n_candidates", "1"),
    (negative_lambda, "/sampling/diversity_lambda", "0"),
    (teacher_of_the_cloud, "/teacher/base_url", "public internet"),
    (teacher_next_door, "/teacher/base_url", "public internet"),
    (teacher_without_tls, "/teacher/base_url", "https"),
    (unknown_price, "/teacher/price", "gpt-nobody-knows"),
    (json_output, "/slices/0/label", "has no labels"),
]


@pytest.mark.parametrize(("spoil", "pointer", "word"), CASES, ids=[case[0].__name__ for case in CASES])
def test_a_bad_spec_is_refused_where_it_is_wrong_and_nothing_is_kept(
    customer: Customer, spoil: Callable[[Spec], None], pointer: str, word: str
) -> None:
    spec = copy.deepcopy(small_spec("bad-input"))
    spoil(spec)
    for path in ("/v1/specs/validate", "/v1/compiles"):
        response = customer.api.post(path, json=spec)
        assert response.status_code == 422, response.text[:500]
        assert response.headers["content-type"] == "application/problem+json"
        problems = response.json()["errors"]
        fitting = [problem for problem in problems if problem["pointer"].startswith(pointer)]
        assert fitting, problems
        assert any(word in problem["detail"] for problem in fitting), fitting
    assert customer.get("/v1/compiles", name="bad-input")["data"] == []


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"x" * 50_000_000, 413, "payload_too_large"),
        (b'{"name": "\xff\xfe"}', 400, "invalid_utf8"),
        (b'{"name": ', 400, "malformed_json"),
        (b"[]", 422, "invalid_spec"),
        (b"[" * 100_000, 400, "malformed_json"),
    ],
    ids=["50 MB", "invalid UTF-8", "half JSON", "a list", "a pit"],
)
def test_a_body_that_is_no_spec_is_refused(customer: Customer, body: bytes, status: int, code: str) -> None:
    response = customer.api.post("/v1/compiles", content=body, headers={"Content-Type": "application/json"})
    assert (response.status_code, response.json()["code"]) == (status, code)


def test_an_upload_that_was_cut_off_is_refused(customer: Customer) -> None:
    whole = b'{"input": "where is my refund"}\n' * 10
    query = {"purpose": "captures", "sha256": hashlib.sha256(whole).hexdigest()}
    headers = {"Content-Type": "application/x-ndjson"}
    for body, status in ((whole[:-7], 400), (whole[:-32], 400), (whole, 201)):
        response = customer.api.post("/v1/uploads", params=query, content=body, headers=headers)
        assert response.status_code == status, response.text
