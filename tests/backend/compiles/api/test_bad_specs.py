"""Bad specs: each ends in a clear error at its place, the same from POST, estimate and validate, and starts nothing."""

import copy
import functools
import json
import operator
from typing import Any

import pytest
from django.test import Client
from hypothesis import HealthCheck, given
from hypothesis import settings as settings_of_hypothesis
from hypothesis import strategies as st

from backend.compiles.models import Compile, Outbox
from backend.compiles.uploads.rows import UploadPurpose
from backend.domain.ids import Prefix, decode_id
from backend.rest.new_ids import new_id
from backend.tenants.isolation import tenant_scope
from backend.usage.holds import amount_of
from tests.backend.asgi_requests import send_to
from tests.compile_factories import gold, make_teacher_key, make_upload, public_id, small_spec
from tests.factories import bearer, make_api_key, make_tenant

pytestmark = pytest.mark.usefixtures("committed_db")

PLACES = ("/v1/compiles", "/v1/compiles/estimate", "/v1/specs/validate")
PRICE = {"input_usd_per_mtok": 1, "output_usd_per_mtok": 2}


def labels(*shares: float | None, names: tuple[str, ...] = ("refund", "other")) -> dict[str, Any]:
    both = zip(names, shares or (None,) * len(names), strict=True)
    return {"type": "label", "labels": [{"name": name, "share": share} for name, share in both]}


def outside(url: str) -> dict[str, Any]:
    return {"provider": "openai_compatible", "model": "m", "base_url": url, "price": PRICE}


BAD = {
    "an unknown key": ({"taks": "x"}, "/taks", "unknown_key"),
    "a misspelt option": ({"sampling": {"diversity_lamda": 0.3}}, "/sampling/diversity_lamda", "unknown_key"),
    "an empty task": ({"task": ""}, "/task", "empty"),
    "a blank task": ({"task": " \n"}, "/task", "bad_format"),
    "a label twice": ({"output": labels(names=("refund", "Refund"))}, "/output/labels/1/name", "duplicate_label"),
    "shares over 1": ({"output": labels(0.9, 0.9)}, "/output/labels", "shares_do_not_sum"),
    "shares under 1": ({"output": labels(0.1, 0.1)}, "/output/labels", "shares_do_not_sum"),
    "a share for one label": ({"output": labels(0.5, None)}, "/output/labels", "shares_incomplete"),
    "one example": ({"examples": {"inline": gold(1)}}, "/examples", "too_few_examples"),
    "no example": ({"examples": {"inline": []}}, "/examples", "too_few_examples"),
    "no gold for a label": (
        {"examples": {"inline": gold(24, labels=("refund",)), "holdout": 0.5}},
        "/examples",
        "no_gold_for_label",
    ),
    "gold of an unknown label": (
        {"examples": {"inline": [*gold(24), {"input": "x", "output": "refnud"}], "holdout": 0.5}},
        "/examples/inline/24/output",
        "unknown_label",
    ),
    "a K-score beyond the size of its adapter": (
        {"gate": {"k_min": 0.99, "min_heldout": 5}},
        "/gate/k_min",
        "gate_unreachable",
    ),
    "too little gold": ({"gate": {"min_heldout": 500}}, "/examples", "too_few_heldout"),
    "K over N": ({"sampling": {"n_candidates": 4, "k_select": 5}}, "/sampling/k_select", "k_exceeds_n"),
    "N of nothing": ({"sampling": {"n_candidates": 0}}, "/sampling/n_candidates", "out_of_range"),
    "a negative lambda": ({"sampling": {"diversity_lambda": -0.1}}, "/sampling/diversity_lambda", "out_of_range"),
    "a schema that is none": (
        {"output": {"type": "json", "schema": {"type": "objekt"}}},
        "/output/schema/type",
        "not_a_schema",
    ),
    "a schema without an end": (
        {"output": {"type": "json", "schema": {"$ref": "#"}}},
        "/output/schema/$ref",
        "unsupported_keyword",
    ),
    "an encoder for texts": ({"output": {"type": "text"}, "train": {"kind": "encoder"}}, "/train/kind", "not_used"),
    "a method that nobody knows": ({"sampling": {"method": "best"}}, "/sampling/method", "unknown_value"),
    "the same mitigation twice": ({"sampling": {"on_gap": ["drop_k", "drop_k"]}}, "/sampling/on_gap/1", "not_used"),
    "a draft model that is not named": ({"recipes": {"sources": ["model"]}}, "/recipes/draft_base", "missing"),
    "a model without a price": (
        {"teacher": {"provider": "openai_compatible", "model": "gpt-9", "base_url": "https://llm.example.com/v1"}},
        "/teacher/price",
        "unknown_teacher_price",
    ),
    "no address": ({"teacher": {"provider": "openai_compatible", "model": "m", "price": PRICE}}, "/teacher/base_url",
                   "missing"),
    "a key in the place of its id": (
        {"teacher": outside("https://llm.example.com/v1") | {"api_key": "sk-secret"}},
        "/teacher/api_key",
        "bad_format",
    ),
}  # fmt: skip

PRIVATE = [
    "https://127.0.0.1/v1",
    "https://10.0.0.5/v1",
    "https://192.168.1.1:8443/v1",
    "https://169.254.169.254/latest",
    "https://[::1]/v1",
    "https://[::ffff:10.0.0.1]/v1",
    "https://0x7f000001/v1",
    "https://2130706433/v1",
    "https://localhost/v1",
    "http://llm.example.com/v1",
    "https://llm.example.com:5432/v1",
]


@pytest.fixture
def tenant():
    return make_tenant()


@pytest.fixture
def secret(tenant):
    return make_api_key(tenant)


def post(client: Client, secret: str, path: str, spec: Any) -> Any:
    return client.post(path, json.dumps(spec), content_type="application/json", headers=bearer(secret))


def first_error(answer: Any) -> tuple[int, str, str]:
    body = answer.json()
    return answer.status_code, body["errors"][0]["pointer"], body["errors"][0]["code"]


def starts_nothing(tenant: Any) -> bool:
    with tenant_scope(tenant.id):
        return not Compile.objects.exists() and not Outbox.objects.filter(ids__tenant_id=str(tenant.id)).exists()


@pytest.mark.parametrize(("changes", "pointer", "code"), BAD.values(), ids=BAD)
def test_a_bad_spec_names_its_place_and_its_code_everywhere(client, tenant, secret, changes, pointer, code):
    for path in PLACES:
        answer = post(client, secret, path, small_spec(**changes))
        assert first_error(answer) == (422, pointer, code), path
        assert answer.json()["code"] in ("invalid_spec", code)
        assert pointer in answer.json()["detail"]
    assert starts_nothing(tenant)


def test_a_misspelt_key_is_met_with_the_one_that_was_meant(client, secret):
    spec = small_spec()
    spec["taks"] = spec.pop("task")
    problems = {e["pointer"]: e["detail"] for e in post(client, secret, "/v1/compiles", spec).json()["errors"]}
    assert 'did you mean "task"?' in problems["/taks"]


def test_all_that_is_wrong_is_told_at_once(client, secret):
    wrong = small_spec(task="", sampling={"n_candidates": 0, "diversity_lambda": -1}, budget={"usd": -5})
    pointers = {e["pointer"] for e in post(client, secret, "/v1/compiles", wrong).json()["errors"]}
    assert pointers == {"/task", "/sampling/n_candidates", "/sampling/diversity_lambda", "/budget/usd"}


@pytest.mark.parametrize("url", PRIVATE)
def test_a_teacher_on_an_address_that_is_not_called_is_refused_when_the_spec_comes_in(client, tenant, secret, url):
    answer = post(client, secret, "/v1/compiles", small_spec(teacher=outside(url)))
    assert first_error(answer) == (422, "/teacher/base_url", "address_not_allowed")
    assert starts_nothing(tenant)


def test_a_deployment_may_allow_a_private_teacher_and_only_that_one(client, secret, settings):
    settings.KOLM_ALLOW_PRIVATE_TEACHERS = ("http://127.0.0.1:8900",)
    allowed = post(client, secret, "/v1/compiles", small_spec(teacher=outside("http://127.0.0.1:8900/v1")))
    other = post(client, secret, "/v1/compiles", small_spec(teacher=outside("http://127.0.0.1:8901/v1")))
    assert (allowed.status_code, other.status_code) == (202, 422)


def test_a_public_teacher_with_a_price_is_accepted_without_asking_any_name_server(client, secret, monkeypatch):
    def no_dns(*_: object, **__: object) -> None:
        raise AssertionError("a transaction waits for DNS")

    monkeypatch.setattr("socket.getaddrinfo", no_dns)
    answer = post(client, secret, "/v1/specs/validate", small_spec(teacher=outside("https://llm.example.com/v1")))
    assert answer.status_code == 200


def test_a_budget_below_the_low_bound_is_refused_with_the_least_that_would_do(client, tenant, secret):
    answer = post(client, secret, "/v1/compiles", small_spec(budget={"usd": 0.0001}))
    assert first_error(answer) == (422, "/budget/usd", "budget_below_estimate")
    assert answer.json()["code"] == "budget_below_estimate"
    assert starts_nothing(tenant)


def judged_by(judge: dict[str, Any]) -> dict[str, Any]:
    return {"draft_cache": {"judge": judge}}


def test_what_a_spec_points_at_must_be_there_and_be_of_that_kind(client, tenant, secret):
    captures, recording = make_upload(tenant), make_upload(tenant, purpose=UploadPurpose.RECORDING)
    replay = {"provider": "replay", "model": "kolm-grammar-1"}
    nowhere, no_key = new_id(Prefix.UPLOAD), new_id(Prefix.TEACHER_KEY)
    key = public_id(make_teacher_key(tenant))
    real = outside("https://llm.example.com/v1")
    judge = {"model": "small", "base_url": "https://llm.example.com/v1", "price": real["price"]}
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({"captures": {"upload": nowhere}}, "/captures/upload", "unknown_upload"),
        ({"captures": {"upload": public_id(recording)}}, "/captures/upload", "wrong_purpose"),
        ({"examples": {"upload": nowhere}}, "/examples/upload", "unknown_upload"),
        ({"examples": {"upload": public_id(captures)}}, "/examples/upload", "wrong_purpose"),
        ({"teacher": replay | {"recording": nowhere}}, "/teacher/recording", "unknown_upload"),
        ({"teacher": replay | {"recording": public_id(captures)}}, "/teacher/recording", "wrong_purpose"),
        ({"teacher": real | {"api_key": no_key}}, "/teacher/api_key", "unknown_teacher_key"),
        ({"embedder": "acme/embedder"}, "/embedder", "unknown_embedder"),
        (judged_by(judge | {"api_key": no_key}), "/draft_cache/judge/api_key", "unknown_teacher_key"),
        (judged_by(judge | {"base_url": "http://10.0.0.1/v1"}), "/draft_cache/judge/base_url", "address_not_allowed"),
        (judged_by(judge | {"price": None}), "/draft_cache/judge", "unknown_teacher_price"),
    ]
    for changes, pointer, code in cases:
        answer = post(client, secret, "/v1/compiles", small_spec(**changes))
        assert first_error(answer) == (422, pointer, code), changes
    good = {
        "captures": {"upload": public_id(captures)},
        "teacher": replay | {"recording": public_id(recording)},
    }
    assert post(client, secret, "/v1/compiles", small_spec(**good)).status_code == 202
    assert post(client, secret, "/v1/compiles", small_spec(teacher=real | {"api_key": key})).status_code == 202


@pytest.mark.parametrize(("own_key", "is_whole"), [(True, False), (False, True)])
def test_a_judge_that_we_bill_may_need_any_of_the_budget(client, tenant, secret, own_key, is_whole):
    """The teacher is billed by the customer's own provider, so that the hold has no room for a model of ours."""
    key = public_id(make_teacher_key(tenant))
    judge = outside("https://judge.example.com/v1") | ({"api_key": key} if own_key else {})
    del judge["provider"]
    document = small_spec(
        teacher=outside("https://llm.example.com/v1") | {"api_key": key}, budget={"usd": 500}, **judged_by(judge)
    )
    answer = post(client, secret, "/v1/compiles", document)
    assert answer.status_code == 202, answer.content
    with tenant_scope(tenant.id):
        held = amount_of(tenant.id, decode_id(Prefix.COMPILE, answer.json()["id"]))
    assert held is not None
    assert (held == 500_000_000) is is_whole


@pytest.mark.parametrize("body", ["null", "[]", '"x"', "7", "true"])
def test_a_spec_is_an_object(client, secret, body):
    for path in PLACES:
        answer = client.post(path, body, content_type="application/json", headers=bearer(secret))
        assert first_error(answer) == (422, "", "wrong_type")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b'{"name": "\xff"}', 400, "invalid_utf8"),
        (b'{"name": ', 400, "malformed_json"),
        (b'{"budget": {"usd": NaN}}', 400, "malformed_json"),
        (b'{"name": "a", "name": "b"}', 400, "malformed_json"),
        (b'{"name": "\\ud800"}', 400, "malformed_json"),
        (b"[" * 100_000, 400, "malformed_json"),
        (b"", 422, "invalid_spec"),
    ],
)
def test_a_body_that_is_no_spec_at_all(client, secret, body, status, code):
    answer = client.post("/v1/compiles", body, content_type="application/json", headers=bearer(secret))
    assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_a_body_of_fifty_megabytes_is_refused(secret):
    from backend.asgi import application

    headers = {"content_type": "application/json", "authorization": bearer(secret)["Authorization"]}
    status, _, body = send_to(application, b"x", content_length="50000000", **headers)
    assert (status, json.loads(body)["code"]) == (413, "payload_too_large")


# --- whatever else comes: a good spec with one part of it replaced, removed or added --------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text(max_size=10), below, max_size=4),
    max_leaves=6,
)
RICH = small_spec(
    family="routers",
    output=labels(0.5, 0.5),
    slices=[{"name": "all", "share": 1.0, "hint": "any", "exemplars": ["hello"], "label": "refund"}],
    captures={"inline": ["where is it"], "max": 10},
    verifiers=[{"kind": "regex", "pattern": "a+"}, {"kind": "length", "min_chars": 1}, {"kind": "similarity"}],
    sampling={"n_candidates": 4, "k_select": 2, "method": "diverse", "diversity_lambda": 0.5, "seed": 1},
    train={"rank": 4, "epochs": 2},
    teacher={"provider": "grammar", "model": "kolm-grammar-1", "fallback_model": "kolm-grammar-1", "price": PRICE},
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    keys = value if isinstance(value, dict) else range(min(2, len(value))) if isinstance(value, list) else ()
    return [path, *(place for key in keys for place in places(value[key], (*path, key)))]


@st.composite
def altered_specs(draw: st.DrawFn) -> Any:
    spec = copy.deepcopy(RICH)
    for place in draw(st.lists(st.sampled_from(places(RICH)[1:]), min_size=1, max_size=2)):
        *way, last = place
        try:
            part = functools.reduce(operator.getitem, way, spec)
            if isinstance(part, dict) and draw(st.booleans()):
                del part[last]
            else:
                part[last] = draw(JSON)
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change took the place away
    return spec


def test_the_spec_that_is_altered_below_is_a_good_one(client, secret):
    assert post(client, secret, "/v1/specs/validate", RICH).status_code == 200


@settings_of_hypothesis(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(spec=altered_specs())
def test_whatever_is_put_into_a_spec_the_answer_is_a_place_and_a_reason(client, secret, spec):
    answer = post(client, secret, "/v1/specs/validate", spec)
    assert answer.status_code in (200, 400, 422), answer.content[:500]
    if answer.status_code == 422:
        assert all(e["pointer"].startswith("/") and e["detail"] for e in answer.json()["errors"])
