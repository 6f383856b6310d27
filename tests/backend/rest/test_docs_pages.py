"""The pages that errors point at: served by the deployment itself, to anyone, with an anchor for every code."""

import os
import re
from html.parser import HTMLParser

import pytest
from django.conf import settings
from django.test import Client

from backend.rest.docs_pages import PAGES, anchor_of, to_html

VOID = {"meta", "br"}


class Reader(HTMLParser):
    """Every element closed in order; which anchors there are and where links go."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.anchors: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.open += [] if tag in VOID else [tag]
        self.anchors += [value for name, value in attrs if name == "id"]
        self.links += [value for name, value in attrs if name == "href"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data if {"pre", "code", "style"}.isdisjoint(self.open) else ""


def read(name: str) -> Reader:
    answer = Client().get(f"/docs/{name}")
    assert answer.status_code == 200
    return Reader(answer.content.decode())


# No database is asked for: the pages are there while it is away.
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_whole_and_every_anchor_is_there_once(name):
    page = read(name)
    assert page.open == []
    assert len(page.anchors) == len(set(page.anchors)) >= 5
    assert re.findall(r"^\s*#+ |`|\*\*|\]\(|^\|", page.text, re.MULTILINE) == [], "markup that was not rendered"


@pytest.mark.parametrize("name", PAGES)
def test_a_link_leads_somewhere(name):
    here = read(name)
    pages = {other: read(other) for other in PAGES}
    for link in here.links:
        target, _, anchor = link.partition("#")
        if target.startswith(("https://", "http://")):
            continue
        assert not target or target in pages, link
        assert not anchor or anchor in pages.get(target, here).anchors, link


def test_the_doc_url_of_an_error_is_an_anchor_of_the_page():
    problem = Client().get("/nothing").json()
    assert problem["type"] == "urn:kolm:error:not_found"
    address, _, anchor = problem["doc_url"].partition("#")
    assert address == f"{settings.KOLM_PUBLIC_URL}/docs/errors"
    assert anchor in read("errors").anchors


def test_a_page_may_be_kept_and_runs_nothing():
    answer = Client().get("/docs/errors")
    assert answer["Content-Type"] == "text/html; charset=utf-8"
    assert "max-age=3600" in answer["Cache-Control"]
    assert answer["Content-Security-Policy"].startswith("default-src 'none'")
    again = Client().get("/docs/errors", headers={"If-None-Match": answer["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert Client().head("/docs/errors").status_code == 200


def test_a_page_can_only_be_read():
    answer = Client().post("/docs/errors")
    assert (answer.status_code, answer["Allow"], answer.json()["code"]) == (405, "GET, HEAD", "method_not_allowed")


def test_there_are_no_other_pages():
    for name in ("glossary", "errors.md", "../pyproject", "%2e%2e/README"):
        assert Client().get(f"/docs/{name}").status_code == 404


def test_a_deployment_without_its_pages_says_so(settings, tmp_path):
    settings.ROOT = tmp_path
    problem = Client().get("/docs/errors").json()
    assert (problem["status"], problem["code"]) == (404, "docs_not_installed")
    assert "docs/errors.md" in problem["detail"]


def test_a_page_that_was_edited_is_rendered_anew(settings, tmp_path):
    settings.ROOT = tmp_path
    page = tmp_path / "docs" / "errors.md"
    page.parent.mkdir()
    for n, text in enumerate(["# One", "# Two"]):
        page.write_text(text)
        os.utime(page, ns=(n, n))
        assert f">{text[2:]}</h1>" in Client().get("/docs/errors").content.decode()


def test_what_the_renderer_knows():
    markdown = (
        "# Title\n\nA *plain* paragraph\nof two lines with `a < b`, **bold** & a [link](events.md#x).\n\n"
        "### some_code\n\n- One: `x|y`\n  goes on.\n- Two.\n\n| a | b |\n|---|---|\n| 1 | <2> |\n\n"
        "```json\n{\n\n- no: list\n}\n```\n"
    )
    assert to_html(markdown).split("\n") == [
        '<h1 id="title">Title</h1>',
        "<p>A <em>plain</em> paragraph",
        'of two lines with <code>a &lt; b</code>, <strong>bold</strong> &amp; a <a href="events#x">link</a>.</p>',
        '<h3 id="some_code">some_code</h3>',
        "<ul>",
        "<li>One: <code>x|y</code>",
        "goes on.</li>",
        "<li>Two.</li>",
        "</ul>",
        *["<table>", "<thead>", "<tr>", "<th>a</th>", "<th>b</th>", "</tr>", "</thead>"],
        *["<tbody>", "<tr>", "<td>1</td>", "<td>&lt;2&gt;</td>", "</tr>", "</tbody>", "</table>"],
        '<pre><code class="language-json">{',
        "",
        "- no: list",
        "}",
        "</code></pre>",
        "",
    ]


@pytest.mark.parametrize(
    "hostile", ["<script>", "`<b>`", "[x](javascript:alert(1))", '[x](https://a"b)', "**<i>**", "# <h>"]
)
def test_nothing_in_a_page_becomes_markup_of_its_own(hostile):
    rendered = to_html(hostile)
    assert re.findall(r"<(?!/?(?:p|h1|code|strong|a)\b)", rendered) == []
    assert 'href="javascript' not in rendered
    assert Reader(rendered).open == []


@pytest.mark.parametrize("target", ["javascript:alert(1)", "&#9;javascript:x", "//other.example", "data:text/html,x"])
def test_a_link_to_elsewhere_stays_text(target):
    assert Reader(to_html(f"[x]({target})")).links == []


@pytest.mark.parametrize("target", ["https://a.example/b?c=1", "mailto:a@b.example", "#x", "/v1/specs/schema", "../x"])
def test_a_link_to_the_web_to_mail_or_to_a_page_beside_this_one_is_one(target):
    assert Reader(to_html(f"[x]({target})")).links == [target]


@pytest.mark.parametrize(
    "target", ["glossary.md", "benchmarks/gate-stability.md", "../README.md#two-commands", "openapi.json"]
)
def test_a_link_to_a_page_that_is_not_served_stays_as_its_words(target):
    assert to_html(f"Read *[the `page`]({target})* first.") == "<p>Read <em>the <code>page</code></em> first.</p>\n"
    assert Reader(to_html("[elsewhere](https://a.example/README.md)")).links == ["https://a.example/README.md"]


def test_a_comment_on_a_line_of_its_own_is_left_out():
    assert to_html("One.\n\n<!-- commands: written by `x` -->\n\nTwo.") == "<p>One.</p>\n<p>Two.</p>\n"


def test_anchors_are_those_of_github():
    assert [anchor_of(text) for text in ("Keys and limits", "`k_exceeds_n`", "A, b: c?")] == [
        "keys-and-limits",
        "k_exceeds_n",
        "a-b-c",
    ]
