"""The page of a compile's held-out answers, without a script: what is wrong, filtered and walked."""

import re
from html import unescape

import pytest
from django.test import Client

from backend.compiles.models import Compile
from backend.domain.lifecycle import CompileStatus
from backend.domain.roles import Role
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from tests.backend.console.pages import get, logged_in
from tests.compile_factories import fresh, make_compile, public_id
from tests.factories import make_tenant
from tests.heldout_factories import json_compile, label_compile, text_compile
from tests.workers.answer_helpers import EASY, advance, at_distillation, json_answer, json_spec, right, trial

pytestmark = pytest.mark.usefixtures("committed_db")
HOSTILE = "<script>alert(1)</script> AB-1 \"'&"


@pytest.fixture
def tenant(committed_db: None) -> Tenant:
    return make_tenant()


@pytest.fixture
def client(tenant: Tenant) -> Client:
    return logged_in(tenant, Role.VIEWER)


def path_of(row: Compile) -> str:
    return f"/app/compiles/{public_id(row)}/answers"


def inputs(text: str) -> list[str]:
    """The inputs in the table, as they are read."""
    cells = re.findall(r'<td class="candidate"><bdi>(.*?)</bdi>', text)
    return [unescape(re.sub(r"<[^>]+>", "", cell)) for cell in cells]


def links(text: str) -> list[str]:
    return [unescape(href) for href in re.findall(r'href="(\?[^"]*)"', text)]


def test_the_wrong_answers_of_a_label_task_are_shown_first_and_the_others_a_tab_away(tenant, client):
    row = label_compile(
        tenant, ("refund", "refund"), ("refund", "other"), ("other", "?"), inputs=["one", "two", "three"]
    )
    text = get(client, path_of(row))
    assert inputs(text) == ["two", "three"]
    assert "2 of 3 answers to held-out inputs are wrong" in text
    assert "The worst label is <b><bdi>other</bdi></b>" in text
    assert "Confusion matrix" in text
    assert inputs(get(client, f"{path_of(row)}?wrong=false")) == ["one"]
    assert inputs(get(client, f"{path_of(row)}?wrong=any")) == ["one", "two", "three"]


def test_every_confusion_and_every_label_leads_to_its_rows(tenant, client):
    row = label_compile(tenant, ("refund", "other"), ("other", "?"), inputs=["one", "two"])
    text = get(client, path_of(row))
    confused = [href for href in links(text) if "gold=" in href]
    assert [inputs(get(client, path_of(row) + href)) for href in confused] == [["two"], ["one"]]
    assert inputs(get(client, f"{path_of(row)}?label=refund")) == ["one"]
    assert "none of the labels" in get(client, path_of(row) + confused[0])


def test_the_wrong_answers_of_a_json_task_show_field_values_and_places_and_escape_them(tenant, client):
    gold = {"kind": "order", "lines": [{"sku": "AB-1"}]}
    answer = {"kind": "return", "lines": [{"sku": "<script>"}]}
    fields = [{"path": '/lines/0/"><img src=x>', "start": 0, "end": 8, "confidence_ppm": 500_000}]
    row = json_compile(tenant, (gold, answer), ({"kind": "order"}, "{"), inputs=[HOSTILE, "b"], fields=[fields, []])
    text = get(client, path_of(row))
    assert inputs(text) == [HOSTILE, "b"]
    assert '<mark class="gold" title="/lines/*/sku (gold)">AB-1</mark>' in text
    assert 'class="predicted" title="/lines/0/&quot;&gt;&lt;img src=x&gt; (read here, 0.500), /lines/*/sku' in text
    assert "<img" not in text
    assert "<script>alert" not in text
    assert "<ins><bdi>&quot;order&quot;</bdi></ins> <del><bdi>&quot;return&quot;</bdi></del>" in text
    assert '<span class="muted">not answered</span>' in text
    assert '<span class="tag bad">schema</span>' in text
    assert inputs(get(client, f"{path_of(row)}?check=schema")) == ["b"]
    assert inputs(get(client, f"{path_of(row)}?field=/lines/*/sku")) == [HOSTILE]
    confused = [href for href in links(text) if "field=%2Fkind" in href and "gold=" in href]
    leading = [one for href in confused for one in inputs(get(client, path_of(row) + href))]
    assert sorted(leading) == sorted([HOSTILE, "b"])


def test_a_text_task_shows_the_checks_that_its_answers_fail(tenant, client):
    row = text_compile(tenant, "fine", "we promise", failed=[[], ["excludes"]])
    text = get(client, path_of(row))
    assert len(inputs(text)) == 1
    assert "we promise" in text
    assert '<span class="tag bad">excludes</span>' in text


def test_the_pages_are_walked_there_and_back(tenant, client):
    row = label_compile(tenant, *[("refund", "other")] * 60, inputs=[f"input {i}" for i in range(60)])
    seen, text = [], get(client, path_of(row))
    while True:
        seen += inputs(text)
        after = re.search(r'rel="next" href="([^"]*)"', text)
        if after is None:
            break
        text = get(client, path_of(row) + unescape(after[1]))
    assert seen == [f"input {i}" for i in range(60)]
    before = re.search(r'rel="prev" href="([^"]*)"', text)
    assert before is not None
    assert inputs(get(client, path_of(row) + unescape(before[1])))[-1] == "input 49"


def test_where_there_is_nothing_to_show_that_is_said(tenant, client):
    assert "not answered yet" in get(client, path_of(make_compile(tenant)))
    right_ones = label_compile(tenant, ("refund", "refund"), ("other", "other"))
    assert "No held-out answer is wrong." in get(client, path_of(right_ones))
    assert "No answer matches." in get(client, f"{path_of(right_ones)}?label=refund")
    assert "No held-out answer is right." in get(
        client, f"{path_of(label_compile(tenant, ('other', '?')))}?wrong=false"
    )


@pytest.mark.parametrize(
    "query", ["?wrong=x&cursor=zz", "?cursor=-0", "?cursor=99999", "?field=/a&label=b&gold=%F0", "?check=no"]
)
def test_an_address_that_makes_no_sense_is_a_page_all_the_same(tenant, client, query):
    get(client, path_of(json_compile(tenant, ({"kind": "order"}, {"kind": "return"}))) + query)


def test_a_long_input_is_cut_and_a_page_of_them_stays_small(tenant, client):
    row = label_compile(tenant, *[("refund", "other")] * 25, inputs=["é<" * 2_000] * 25)
    assert "4,000 characters; the API has the whole text" in get(client, path_of(row))


def test_another_teams_answers_are_not_there(client):
    get(client, path_of(label_compile(make_tenant("Other"), ("refund", "other"))), status=404)


def test_what_the_steps_really_leave_of_a_compile_below_its_gate_is_shown_and_linked():
    row = at_distillation(json_answer, **json_spec(gate=EASY, train={"escalate": False}))
    trial(row, right(10))
    advance(row)
    assert fresh(row).status == CompileStatus.GATE_FAILED
    with tenant_scope(row.tenant_id):
        client = logged_in(Tenant.objects.get(id=row.tenant_id))
    assert f"{path_of(row)}?field=%2Fsubject" in get(client, f"/app/compiles/{public_id(row)}?tab=all")
    text = get(client, path_of(row))
    assert "14 of 24 answers to held-out inputs are wrong; 14 fail a check" in text
    assert len(inputs(text)) == 14
