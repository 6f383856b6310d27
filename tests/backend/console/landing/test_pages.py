import re

import pytest
from django.test import Client

from backend.console.landing.pages import figures
from deploy.embedded.home import ROOT
from tests.backend.console.pages import get, logged_in
from tests.factories import make_tenant

pytestmark = pytest.mark.django_db


def test_a_stranger_is_told_what_it_is_and_what_it_is_worth():
    text = get(Client(), "/")
    for one in figures():
        assert one["figure"] in text
    for way in ("/accounts/login/", "/docs/", "/pricing", "/docs/claims"):
        assert f'href="{way}"' in text
    assert 'href="/accounts/signup/?next=/app/gallery"' in text
    assert "card-picture" in text


def test_whoever_is_logged_in_goes_to_the_console():
    assert logged_in(make_tenant()).get("/")["Location"] == "/app/"


def test_the_page_needs_no_script():
    text = get(Client(), "/")
    scripts = re.findall(r"<script[^>]*src=\"[^\"]*/([\w]+)\.[^\"]*\"", text)
    assert set(scripts) <= {"theme", "console"}  # which choose the theme and copy; nothing waits for them


def test_every_figure_stands_in_the_bench_that_it_names():
    assert len(figures()) == 3
    for one in figures():
        for proof in one["proof"]:
            assert proof["text"] in (ROOT / proof["bench"]).read_text(encoding="utf-8"), proof
        proofs = " ".join(proof["text"] for proof in one["proof"])
        shown = f"{one['figure']} {one['beside']}"
        assert re.findall(r"\d+\.\d+", shown) == [number.removesuffix(" %") for number in one["numbers"]]
        assert all(number in proofs for number in one["numbers"])


def test_the_readme_says_the_same_three():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(readme.splitlines()) <= 120
    for one in figures():
        assert f"| {one['figure']} | {one['beside']} |" in readme
