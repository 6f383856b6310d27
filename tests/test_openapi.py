"""The OpenAPI document: it is what the code says, it is complete, and the API keeps to it."""

import json
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from django.core.management import call_command
from django.core.wsgi import get_wsgi_application
from django.db import connection
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from backend.console.middleware import is_console
from backend.domain.spec.parsing import spec_json_schema
from backend.selections import preferences
from tests.backend.selections.played_runner import post, work_on_next
from tests.compile_factories import (
    make_artifact,
    make_candidate,
    make_compile,
    make_receipts,
    make_slice,
    make_teacher_key,
    make_upload,
    public_id,
    small_spec,
)
from tests.factories import make_api_key, make_tenant
from tests.profiles import IS_FULL

COMMITTED = Path(__file__).parent.parent / "docs" / "openapi.json"
DOCUMENT = json.loads(COMMITTED.read_text())
METHODS = {"get", "post", "put", "patch", "delete"}
OPERATIONS = {
    operation["operationId"]: (path, method)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
    if method in METHODS
}
N_EXAMPLES = 12 if IS_FULL else 4
# Public, and not of the versioned API: health, pages for people, the document itself.
UNVERSIONED = {
    "healthz",
    "readyz",
    "docs",
    "docs/",
    "docs/<path:path>",
    ".well-known/kolm-keys.json",
    "v1/openapi.json",
    "v1/stripe/webhook",  # for Stripe, which knows its form
}


def routes(patterns: list[Any], prefix: str = "") -> set[str]:
    found: set[str] = set()
    for pattern in patterns:
        here = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            found |= routes(pattern.url_patterns, here)
        elif isinstance(pattern, URLPattern):
            found.add(here)
    return found


def test_the_committed_document_is_what_the_code_says(tmp_path, db):
    fresh = tmp_path / "openapi.json"
    call_command("spectacular", "--validate", "--fail-on-warn", "--format", "openapi-json", "--file", str(fresh))
    assert fresh.read_text() == COMMITTED.read_text(), "run `make openapi` and commit docs/openapi.json"


def test_the_served_document_is_the_committed_one(client, db):
    assert client.get("/v1/openapi.json").json() == DOCUMENT


def test_it_is_openapi_three_one_and_names_its_version():
    assert DOCUMENT["openapi"].startswith("3.1.")
    assert DOCUMENT["info"]["version"] == "2026-11-20"


def test_every_public_address_is_in_it_and_no_internal_one():
    every = routes(get_resolver().url_patterns)
    public = {route for route in every if not route.startswith("internal/") and not is_console(f"/{route}")}
    versioned = {"/" + route.replace("<str:", "{").replace(">", "}") for route in public - UNVERSIONED}
    assert set(DOCUMENT["paths"]) == versioned


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_says_what_it_does_what_it_answers_and_how_it_fails(name):
    path, method = OPERATIONS[name]
    operation = DOCUMENT["paths"][path][method]
    assert operation["description"].rstrip().endswith(".")
    assert any(status.startswith("2") for status in operation["responses"])
    assert operation["responses"]["default"]["content"]["application/problem+json"]
    is_public = name == "specs_schema"
    assert bool(operation.get("security") not in (None, [], [{}])) != is_public


def test_the_schema_of_a_spec_accepts_what_the_api_accepts():
    """The published JSON Schema and the code cannot say different things about a good spec."""
    import jsonschema

    validator = jsonschema.Draft202012Validator(spec_json_schema())
    assert list(validator.iter_errors(small_spec())) == []
    for changes in ({"task": ""}, {"taks": "x"}, {"sampling": {"diversity_lambda": -1}}):
        assert list(validator.iter_errors(small_spec(**changes))) != []


# --- schemathesis: generated requests against the whole application -------------------------------------------


@schemathesis.serializer("application/x-ndjson")
def as_lines(context: Any, value: Any) -> bytes:
    """Bytes as they were generated, anything else as one line of JSON."""
    return value if isinstance(value, bytes) else json.dumps(value).encode() + b"\n"


@pytest.fixture(scope="module")
def world(django_db_setup: None, django_db_blocker: Any) -> dict[str, Any]:
    """A tenant with an object behind every kind of id, and its key."""
    with django_db_blocker.unblock():
        tenant = make_tenant()
        row = make_compile(tenant)
        make_candidate(make_slice(row))
        make_receipts(row)
        secret = make_api_key(tenant)
        ids = {
            "compile": public_id(row),
            "artifact": public_id(make_artifact(row)),
            "upload": public_id(make_upload(tenant)),
        }
        key_ids = {
            "/v1/teacher_keys/{key}": public_id(make_teacher_key(tenant)),
        }
        made = Client().post(
            "/v1/api_keys",
            json.dumps({"name": "spare", "scopes": ["compiles:read"]}),
            content_type="application/json",
            headers={"Authorization": f"Bearer {secret}"},
        )
        key_ids |= dict.fromkeys(("/v1/api_keys/{key}", "/v1/api_keys/{key}/revoke"), made.json()["id"])
        chosen = post(secret, {"rows": [{"text": "a", "score": 1}, {"text": "b", "score": 2}], "k": 1})
        ids["selection"] = chosen.json()["id"]
        while work_on_next() is not None:
            pass
        connection.close()
    return {"secret": secret, "ids": ids, "key_ids": key_ids}


@pytest.fixture(scope="module")
def schema() -> Any:
    loaded = schemathesis.openapi.from_dict(DOCUMENT)
    loaded.app = get_wsgi_application()
    return loaded


@pytest.mark.parametrize("name", OPERATIONS)
def test_generated_requests_meet_no_fault_of_ours_and_answers_keep_their_shape(
    name, world, schema, committed_db, settings_, monkeypatch
):
    path, method = OPERATIONS[name]
    operation = schema[path][method.upper()]
    real = {"key": world["key_ids"].get(path), **world["ids"]}
    if name == "artifacts_run":
        real.pop("artifact")  # no runner is there: the answer would be an honest 503
    if name == "select_delete":
        real.pop("selection")  # the operations after it need it
    if name == "uploads_delete":
        real.pop("upload")
    monkeypatch.setattr(preferences, "MAX_WAIT_S", 0.0)

    modes = [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE]
    cases = st.one_of(*(operation.as_strategy(generation_mode=mode) for mode in modes))

    @seed(20261121)
    @settings(
        max_examples=N_EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases, is_real=st.booleans())
    def ask(case: Any, is_real: bool) -> None:
        if is_real:
            parameters = {k: real[k] for k in case.path_parameters or {} if real.get(k)}
            case.path_parameters = {**(case.path_parameters or {}), **parameters}
        case.headers = {**(case.headers or {}), "Authorization": f"Bearer {world['secret']}"}
        response = case.call()
        if b"payments_not_configured" in response.content:
            return  # 501: this deployment takes no payment
        assert response.status_code < 500, (case.as_curl_command(), response.text[:500])
        case.validate_response(
            response,
            checks=[
                not_a_server_error,
                status_code_conformance,
                content_type_conformance,
                response_schema_conformance,
            ],
        )

    ask()
    connection.close()


@pytest.fixture
def settings_(settings: Any) -> Any:
    """Django's, under a name that does not hide hypothesis'."""
    settings.KOLM_RATE_PER_KEY = settings.KOLM_RATE_PER_TENANT = 1_000_000
    return settings
