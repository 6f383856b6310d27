"""/docs/: the built site, served to anyone without mkdocs, database or session, at the addresses that errors name."""

import gzip
import os
from pathlib import Path

import pytest
from django.test import Client

from backend.console.docs_site import STAMP


@pytest.fixture
def site(settings, tmp_path: Path) -> Path:
    """A site of three files, as a build leaves them."""
    settings.ROOT = tmp_path
    folder = tmp_path / "build" / "docs-site"
    (folder / "concepts").mkdir(parents=True)
    for name, text in {
        "index.html": "<h1>Home</h1>",
        "errors.html": '<h3 id="not_found">not_found</h3>' + "<p>errors</p>" * 9,
        "concepts/index.html": "<h1>Concepts</h1>",
        "bundle.0123abcd.min.js": "//",
        STAMP: "1",
    }.items():
        (folder / name).write_text(text)
    (folder / "errors.html.gz").write_bytes(gzip.compress(b"<h3>packed</h3>"))
    return folder


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/docs/", "Home"),
        ("/docs/errors", "not_found"),
        ("/docs/errors.html", "not_found"),
        ("/docs/concepts/", "Concepts"),
    ],
)
def test_a_page_is_served_with_and_without_its_suffix(site, path, words):
    answer = Client().get(path)
    assert (answer.status_code, answer["Content-Type"]) == (200, 'text/html; charset="utf-8"')
    assert words in answer.content.decode()


@pytest.mark.parametrize(
    ("path", "to"), [("/docs", "/docs/"), ("/docs/index.html", "./"), ("/docs/concepts", "concepts/")]
)
def test_a_folder_leads_to_its_first_page(site, path, to):
    answer = Client().get(path)
    assert answer.status_code == 302
    assert answer["Location"].endswith(to)


def test_no_page_runs_or_loads_anything_from_elsewhere(site):
    policy = Client().get("/docs/errors")["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'")
    assert "http" not in policy
    assert "unsafe" not in policy


def test_pages_are_asked_for_again_and_hashed_files_are_kept(site):
    page = Client().get("/docs/errors")
    assert "max-age=300" in page["Cache-Control"]
    again = Client().get("/docs/errors", headers={"If-Modified-Since": page["Last-Modified"]})
    assert (again.status_code, again.content) == (304, b"")
    assert "immutable" in Client().get("/docs/bundle.0123abcd.min.js")["Cache-Control"]


def test_a_browser_that_takes_gzip_gets_the_packed_file(site):
    answer = Client().get("/docs/errors", headers={"Accept-Encoding": "gzip"})
    assert (answer["Content-Encoding"], gzip.decompress(answer.content)) == ("gzip", b"<h3>packed</h3>")


def test_a_head_has_no_body_and_nothing_else_is_allowed(site):
    assert (Client().head("/docs/errors").status_code, Client().head("/docs/errors").content) == (200, b"")
    answer = Client().post("/docs/errors")
    assert (answer.status_code, answer["Allow"], answer.json()["code"]) == (405, "GET, HEAD", "method_not_allowed")


@pytest.mark.parametrize("path", ["nothing", "errors.md", "../pyproject.toml", "%2e%2e/%2e%2e/secret", "<script>"])
def test_what_the_site_lacks_is_a_page_that_says_so(site, path):
    (site.parent.parent / "secret").write_text("s3cret")
    answer = Client().get(f"/docs/{path}")
    text = answer.content.decode()
    assert answer.status_code == 404
    assert "Page not found" in text
    assert "s3cret" not in text
    assert "<script>" not in text.split("</head>")[1]


def test_an_installation_without_the_site_says_how_to_build_it(settings, tmp_path):
    settings.ROOT = tmp_path
    answer = Client().get("/docs/errors")
    assert answer.status_code == 404
    assert "make docs" in answer.content.decode()


def test_a_site_that_was_built_anew_is_served_anew(site):
    assert "not_found" in Client().get("/docs/errors").content.decode()
    (site / "errors.html").write_text("<h1>newer</h1>")
    os.utime(site / STAMP, ns=(1, 1))
    assert "newer" in Client().get("/docs/errors").content.decode()
