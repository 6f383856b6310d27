"""GET /v1/compiles/{id}/answers and /confusions: which held-out answers are wrong, and what is taken for what."""

import time
from typing import Any

import pytest
from django.test import Client

from backend.compiles.models import Compile
from backend.domain.lifecycle import CompileStatus
from backend.tenants.models import Tenant
from tests.compile_factories import change, make_compile, public_id
from tests.factories import bearer, make_api_key, make_tenant
from tests.heldout_factories import answer_heldout, json_compile, label_compile, text_compile

pytestmark = pytest.mark.django_db
REFUND, OTHER = "refund", "other"


@pytest.fixture
def tenant() -> Tenant:
    return make_tenant()


def ask(tenant: Tenant, row: Compile, what: str, *, scopes: tuple[str, ...] = ("compiles:read",)) -> Any:
    headers = bearer(make_api_key(tenant, scopes=scopes))
    return Client().get(f"/v1/compiles/{public_id(row)}/{what}", headers=headers)


def listed(tenant: Tenant, row: Compile, query: str = "") -> list[dict[str, Any]]:
    answer = ask(tenant, row, f"answers{query}")
    assert answer.status_code == 200, answer.content
    return answer.json()["data"]


def rows(tenant: Tenant, row: Compile, query: str) -> list[int]:
    return [one["row"] for one in listed(tenant, row, query)]


def confusions(tenant: Tenant, row: Compile) -> dict[str, Any]:
    answer = ask(tenant, row, "confusions")
    assert answer.status_code == 200, answer.content
    return answer.json()


def test_a_label_tasks_answers_have_both_labels_and_how_sure_the_model_was(tenant: Tenant) -> None:
    row = label_compile(
        tenant, (REFUND, REFUND), (REFUND, OTHER), (OTHER, "?"), inputs=["a", "b", "<b>"], confidences_ppm=[1, 2, 3]
    )
    assert listed(tenant, row, "?wrong=true")[1] == {
        "object": "heldout_answer",
        "row": 2,
        "input": "<b>",
        "gold": OTHER,
        "predicted": "?",
        "is_wrong": True,
        "mark_ppm": 0,
        "confidence_ppm": 3,
        "is_unsure": None,
        "is_by_rule": False,
        "failed_checks": [],
        "verdict": None,
        "differences": [],
        "spans": [],
    }
    assert rows(tenant, row, "?wrong=false") == [0]
    assert rows(tenant, row, f"?gold={REFUND}&predicted={OTHER}") == [1]
    assert rows(tenant, row, "?predicted=") == [2]
    assert rows(tenant, row, f"?label={OTHER}") == [1, 2]


def test_the_confusions_of_a_label_task_name_its_worst_label(tenant: Tenant) -> None:
    told = confusions(tenant, label_compile(tenant, (REFUND, REFUND), (REFUND, OTHER), (REFUND, OTHER), (OTHER, "?")))
    assert (told["task"], told["n"], told["n_wrong"], told["n_invalid"], told["worst"]) == ("label", 4, 3, 0, OTHER)
    assert told["confusions"] == [
        {"field": None, "gold": REFUND, "predicted": OTHER, "count": 2, "is_closed": True},
        {"field": None, "gold": OTHER, "predicted": None, "count": 1, "is_closed": True},
    ]
    assert [(part["name"], part["n"], part["score_ppm"], part["n_wrong"]) for part in told["parts"]] == [
        (OTHER, 1, 0, 1),
        (REFUND, 3, 333_333, 2),
    ]


def test_a_json_tasks_answers_have_the_fields_that_differ_and_where_their_values_stand(tenant: Tenant) -> None:
    gold = {"kind": "order", "lines": [{"sku": "AB-1"}]}
    fields = [{"path": "/lines/0/sku", "start": 5, "end": 9, "confidence_ppm": 987_000}]
    row = json_compile(
        tenant, (gold, {"kind": "order", "lines": [{"sku": "XY-2"}]}), inputs=["AB-1 XY-2"], fields=[fields]
    )
    (one,) = listed(tenant, row, "?field=/lines/*/sku")
    assert one["differences"] == [
        {"field": "/lines/*/sku", "kind": "other_value", "gold": ["AB-1"], "predicted": ["XY-2"]}
    ]
    assert one["mark_ppm"] == 500_000
    assert [(span["path"], span["source"], span["start"], span["end"]) for span in one["spans"]] == [
        ("/lines/0/sku", "model", 5, 9),
        ("/lines/*/sku", "gold", 0, 4),
        ("/lines/*/sku", "predicted", 5, 9),
    ]


def test_the_confusions_of_a_json_task_are_by_field_and_value(tenant: Tenant) -> None:
    urgent = ({"kind": "order", "urgent": True}, {"kind": "order"})
    row = json_compile(tenant, *[urgent] * 6, ({"kind": "order"}, {"kind": "return"}), ({"kind": "return"}, "{"))
    told = confusions(tenant, row)
    assert (told["n_wrong"], told["n_invalid"], told["worst"]) == (8, 1, "/urgent")
    assert told["failed_checks"] == [{"name": "schema", "n": 1}]
    assert [(one["field"], one["gold"], one["predicted"], one["count"]) for one in told["confusions"]] == [
        ("/urgent", True, None, 6),
        ("/kind", "order", "return", 1),
        ("/kind", "return", None, 1),
    ]
    assert rows(tenant, row, "?field=/urgent&gold=true&predicted=null") == [0, 1, 2, 3, 4, 5]
    assert rows(tenant, row, "?field=/kind&gold=return") == [7]
    assert rows(tenant, row, "?check=schema") == [7]


def test_a_text_tasks_answers_name_the_checks_that_they_fail(tenant: Tenant) -> None:
    row = text_compile(tenant, "fine", "we promise", failed=[[], ["excludes"]])
    (one,) = listed(tenant, row, "?wrong=true")
    assert (one["row"], one["failed_checks"], one["predicted"]) == (1, ["excludes"], "we promise")
    told = confusions(tenant, row)
    assert (told["worst"], told["confusions"], told["parts"]) == (None, [], [])


def test_the_pages_have_every_row_once_forwards_and_back(tenant: Tenant) -> None:
    row = label_compile(tenant, *[(REFUND, OTHER), (REFUND, REFUND)] * 6)
    walked, query = [], "?wrong=true&limit=4"
    page = ask(tenant, row, f"answers{query}").json()
    while True:
        walked += [one["row"] for one in page["data"]]
        if not page["has_more"]:
            break
        page = ask(tenant, row, f"answers{query}&after={page['next_cursor']}").json()
    assert walked == [0, 2, 4, 6, 8, 10]
    back = ask(tenant, row, "answers?wrong=true&limit=2&before=8").json()
    assert ([one["row"] for one in back["data"]], back["has_more"], back["next_cursor"]) == ([4, 6], True, "4")
    assert rows(tenant, row, "?after=999") == []


@pytest.mark.parametrize(
    "query",
    [
        "?limit=0",
        "?limit=101",
        "?wrong=maybe",
        "?field=/kind",
        "?wrog=true",
        "?after=x",
        "?after=1&before=2",
        "?label=%00",
    ],
)
def test_a_query_that_cannot_be_meant_is_refused(tenant: Tenant, query: str) -> None:
    row = label_compile(tenant, (REFUND, OTHER))
    assert ask(tenant, row, f"answers{query}").status_code in (400, 422)
    assert ask(tenant, row, "confusions?field=a").status_code in (400, 422)


def test_before_the_evaluation_there_are_none_and_that_is_said(tenant: Tenant) -> None:
    row = make_compile(tenant)
    for what in ("answers", "confusions"):
        answer = ask(tenant, row, what)
        assert (answer.status_code, answer.json()["code"]) == (409, "not_evaluated")
        assert "queued" in answer.json()["detail"]


def test_another_tenants_answers_are_not_there_and_a_scope_is_needed(tenant: Tenant) -> None:
    row = label_compile(make_tenant("Other"), (REFUND, OTHER))
    mine = label_compile(tenant, (REFUND, OTHER))
    for what in ("answers", "confusions"):
        assert ask(tenant, row, what).status_code == 404
        assert ask(tenant, mine, what, scopes=("drafts:read",)).status_code == 403


def test_ten_thousand_rows_are_paged_without_judging_them_all(tenant: Tenant) -> None:
    wrong = ({"kind": "order", "lines": [{"sku": "AB-1"}] * 5}, {"kind": "return", "lines": [{"sku": "XY-2"}] * 5})
    row = json_compile(tenant, *[wrong] * 10_000)
    began = time.process_time()
    assert len(listed(tenant, row, "?wrong=true&limit=100")) == 100
    one_page = time.process_time() - began
    assert confusions(tenant, row)["n_wrong"] == 10_000
    began = time.process_time()
    assert confusions(tenant, row)["confusions"][0]["count"] == 50_000
    assert one_page < 2
    assert time.process_time() - began < 1, "the counts were made twice"


def test_a_compile_that_is_answered_anew_is_counted_anew(tenant: Tenant) -> None:
    row = label_compile(tenant, (REFUND, OTHER))
    assert confusions(tenant, row)["n_wrong"] == 1
    answer_heldout(row, [REFUND], [REFUND])
    assert confusions(tenant, row)["n_wrong"] == 0
    change(row, status=CompileStatus.SUCCEEDED)
    assert listed(tenant, row, "?wrong=true") == []
