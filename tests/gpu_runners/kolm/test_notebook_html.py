"""What a notebook shows: tables and cards, and never the markup of whoever wrote a text."""

import re
from html import escape
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_runners import kolm
from gpu_runners.kolm.notebook_html import mark_places
from gpu_runners.kolm.rows import build
from tests.gpu_runners.cli.api.small_api import CARD
from tests.gpu_runners.wire import Say, wire

HOSTILE = '<img src=x onerror="alert(1)">'
TAGS = {"table", "thead", "tbody", "tr", "th", "td", "p", "b", "mark"}


def tags(html: str) -> set[str]:
    return set(re.findall(r"</?([a-zA-Z]+)", html))


def compile_row(**more: Any) -> kolm.Compile:
    row = {"id": "cmp_1", "name": "router", "status": "gate_failed", "budget_microusd": 1, "spent_microusd": 2120}
    return build(kolm.Compile, row | more)


def test_a_compile_is_its_state_its_card_and_what_to_do_next() -> None:
    html = compile_row(card=CARD, k_score_ppm=912_345, gate={"next_step": "add 40 gold examples"})._repr_html_()
    assert "<b>router</b> cmp_1: gate_failed, K-score 0.912, spent $0.0021" in html
    assert "<td>the student</td><td>91.2 % [84.0, 95.3]</td><td>100</td><td>5.02 ms</td><td>$0.00075</td>" in html
    assert "<td>the teacher itself</td><td>–</td>" in html
    assert "next: add 40 gold examples" in html


def test_an_artifact_is_its_members_and_its_card() -> None:
    row = {"id": "art_1", "name": "router", "version": 2, "sha256": "ab", "size_bytes": 9, "k_score_ppm": 912_345}
    html = build(kolm.Artifact, row | {"card": CARD})._repr_html_()
    assert "<td>version</td><td>2</td>" in html
    assert "<td>the student</td>" in html


@pytest.mark.parametrize("member", ["name", "status", "id"])
def test_no_text_of_a_server_is_markup(member: str) -> None:
    row = compile_row(card={**CARD, "rows": [CARD["rows"][0] | {"words": HOSTILE}]}, gate={"next_step": HOSTILE},
                      failure={"code": "x", "message": HOSTILE}, **{member: HOSTILE})  # fmt: skip
    html = row._repr_html_()
    assert tags(html) <= TAGS
    assert html.count("&lt;img") == 4


def test_no_secret_is_shown() -> None:
    row = {"id": "key_1", "name": "ci", "live": True, "prefix": "sk_", "last4": "abcd", "secret": "sk_live_secret"}
    assert "sk_live_secret" not in build(kolm.ApiKey, row)._repr_html_()
    endpoint = {"id": "we_1", "url": "https://x", "status": "enabled", "secret": "whsec_secret"}
    assert "whsec_secret" not in build(kolm.WebhookEndpoint, endpoint)._repr_html_()


def test_the_places_of_an_answer_are_marked_in_its_input() -> None:
    field = {"path": "/city", "start": 6, "end": 12, "confidence_ppm": 990_000}
    output = {"output": '{"city": "Berlin"}', "latency_us": 9, "confidence": 0.4, "fields": [field]}
    with wire(Say(body={"artifact": "art_x", "outputs": [output]})) as server, kolm.Client("k", server.url) as client:
        run = client.artifacts.run("art_x", ["a for Berlin <b>"])
    assert run.outputs[0].input == "a for Berlin <b>"
    for html in (run._repr_html_(), run.outputs[0]._repr_html_()):
        assert 'a for <mark title="/city 0.990">Berlin</mark> &lt;b&gt;' in html
        assert "{&quot;city&quot;: &quot;Berlin&quot;}" in html


def test_a_held_out_answer_stands_beside_gold() -> None:
    span = {"path": "/city", "source": "gold", "start": 3, "end": 9, "confidence_ppm": None}
    row = {"row": 1, "input": "to Berlin", "gold": "Berlin", "predicted": HOSTILE, "is_wrong": True, "spans": [span]}
    html = build(kolm.HeldoutAnswer, row)._repr_html_()
    assert 'to <mark title="/city (gold)">Berlin</mark>' in html
    assert tags(html) <= TAGS


spans = st.lists(st.tuples(st.integers(-5, 40), st.integers(-5, 40), st.text(max_size=5)), max_size=6)


@given(st.text(max_size=30), spans)
def test_marks_take_nothing_from_a_text_and_add_no_markup(text: str, places: list[tuple[int, int, str]]) -> None:
    html = mark_places(text, places)
    assert tags(html) <= {"mark"}
    assert re.sub(r'</?mark(?: title="[^"]*")?>', "", html) == escape(text)


def test_a_list_shows_its_begin_and_still_gives_every_row() -> None:
    row = {"purpose": "captures", "sha256": HOSTILE, "size_bytes": 1, "n_rows": 1}
    page = Say(body={"data": [row | {"id": f"upl_{i}"} for i in range(30)], "next_cursor": None})
    with wire(page) as server, kolm.Client("k", server.url) as client:
        rows = client.uploads.list()
        html = rows._repr_html_()  # type: ignore[attr-defined]
        assert [row.id for row in rows] == [f"upl_{i}" for i in range(30)]
        assert "<p>Nothing.</p>" in rows._repr_html_()  # type: ignore[attr-defined]
    assert html.count("<tr>") == 21
    assert "… and more" in html
    assert tags(html) <= TAGS
