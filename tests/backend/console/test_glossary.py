"""Terms of the glossary: read from the page that people read, and shown where the console first uses them."""

import re
from pathlib import Path

import pytest
from django.template import Context, Template
from django.test import RequestFactory

from backend.console.glossary import add_anchors, terms, terms_of

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
TEMPLATES = ROOT / "backend" / "console" / "templates"


def rendered(source: str) -> str:
    return Template("{% load kolm_terms %}" + source).render(Context({"request": RequestFactory().get("/")}))


def test_every_term_has_an_anchor_of_its_own():
    anchors = re.findall(r'<span id="([^"]+)">', add_anchors(PAGE))
    assert len(anchors) == len(set(anchors)) > 150
    assert {term.anchor for term in terms_of(PAGE).values()} == set(anchors)


def test_a_definition_is_plain_text():
    for term in terms_of(PAGE).values():
        assert not re.search(r"`|\]\(", term.definition), term.name
        assert 10 <= len(term.sentence) <= 320, (term.name, term.sentence)


def test_every_name_of_a_row_is_a_term():
    page = "| word | what it is |\n|---|---|\n| artifact, `.kolm` | The one [file](x.md) of `kolm`. It is signed. |\n"
    assert terms_of(page)["artifact"] == terms_of(page)[".kolm"]
    assert terms_of(page)["artifact"].sentence == "The one file of kolm."


def test_a_term_is_a_link_that_carries_its_definition():
    text = rendered('{% term "slice" "Slices" %}')
    assert text.startswith('<a class="term" href="/docs/glossary#slice" aria-description="')
    assert terms()["slice"].sentence.split(".")[0] in text
    assert text.endswith(">Slices</a>")


def test_a_page_shows_a_definition_once():
    assert rendered('{% term "gate" %} {% term "gate" "Gate" %}').endswith("</a> Gate")


def test_an_installation_without_the_page_shows_the_bare_words(monkeypatch):
    monkeypatch.setattr("backend.console.templatetags.kolm_terms.terms", dict)
    assert rendered('{% term "slice" "Slices" %}') == "Slices"


@pytest.mark.parametrize("path", sorted(TEMPLATES.rglob("*.html")), ids=lambda path: path.name)
def test_every_term_in_a_template_is_one_of_the_glossary(path):
    used = set(re.findall(r'{% term "([^"]+)"', path.read_text(encoding="utf-8")))
    assert used <= set(terms())
