"""The documentation's site: it builds without a warning, names every error, command and field, and loads nothing from
elsewhere."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from backend.domain.spec.parsing import spec_json_schema
from deploy.docs_site.building import ROOT, SITE, STAMP, build_site
from gpu_runners import kolm

VOID = {"meta", "br", "link", "img", "input", "hr", "source", "col", "wbr"}


class Page(HTMLParser):
    """What a page loads, its anchors, and what the policy would refuse."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.loaded: list[str] = []
        self.inline: list[str] = []
        self._script = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.anchors |= {values["id"] or ""} if "id" in values else set()
        if tag in ("script", "img", "iframe", "source") and values.get("src"):
            self.loaded.append(str(values["src"]))
        if tag == "link" and values.get("rel") in ("stylesheet", "icon", "preconnect", "preload"):
            self.loaded.append(str(values["href"]))
        if tag == "style" or "style" in values or any(name.startswith("on") for name in values):
            self.inline.append(self.get_starttag_text() or tag)
        if tag == "script" and "src" not in values and values.get("type") != "application/json":
            self.inline.append(self.get_starttag_text() or tag)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built strictly: a link or an anchor that leads nowhere fails here."""
    folder = tmp_path_factory.mktemp("docs") / "docs-site"
    build_site(folder)
    return folder


def read(site: Path, name: str) -> str:
    return (site / f"{name}.html").read_text(encoding="utf-8")


def test_every_page_of_docs_is_a_page_of_the_site(site: Path) -> None:
    pages = {str(path.relative_to(ROOT / "docs").with_suffix("")) for path in (ROOT / "docs").rglob("*.md")}
    built = {str(path.relative_to(site).with_suffix("")) for path in site.rglob("*.html")}
    assert pages <= built
    assert (site / STAMP).is_file()


def test_no_page_loads_from_elsewhere_or_has_scripts_and_styles_within(site: Path) -> None:
    for file in site.rglob("*.html"):
        page = Page(file.read_text(encoding="utf-8"))
        assert not page.inline, (file.name, page.inline[:3])
        for address in page.loaded:
            assert not re.match(r"(?:https?:)?//", address), (file.name, address)
            assert (file.parent / address).exists(), (file.name, address)


def test_every_error_has_its_anchor_where_errors_point(site: Path) -> None:
    codes = re.findall(r"^### (\S+)$", (ROOT / "docs" / "errors.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(codes) > 100
    assert {code.strip("`") for code in codes} <= Page(read(site, "errors")).anchors


def test_the_glossary_has_an_anchor_for_each_term(site: Path) -> None:
    assert {"slice", "pick", "draft", "receipt", "gate", "k-score"} <= Page(read(site, "glossary")).anchors


def test_the_reference_names_what_the_code_has(site: Path) -> None:
    commands, spec, client = (read(site, f"reference/{name}") for name in ("cli", "spec", "python"))
    by_hand = (ROOT / "docs" / "client.md").read_text(encoding="utf-8")
    for name in re.findall(r"^### (kolm [\w -]+)$", by_hand, re.MULTILINE):
        assert f">{name}<a" in commands, name
    for name in spec_json_schema()["properties"]:
        assert f"<code>{name}</code>" in spec, name
    for name in (name for name in kolm.__all__ if callable(getattr(kolm, name))):
        assert f'id="{name.lower()}' in client, name
    document = json.loads((ROOT / "docs" / "openapi.json").read_text(encoding="utf-8"))
    pages = "".join(file.read_text(encoding="utf-8") for file in (site / "reference" / "api").glob("*.html"))
    for methods in document["paths"].values():
        for operation in methods.values():
            assert f'id="{operation["operationId"]}"' in pages, operation["operationId"]


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.stem)
def test_a_page_has_the_lists_and_tables_that_github_shows(site: Path, page: Path) -> None:
    """Where a blank line lacks before a list, one reader of Markdown sees a list and the other none."""
    text = read(site, str(page.relative_to(ROOT / "docs").with_suffix("")))
    article = text.split('<article class="md-content__inner md-typeset">')[1].split("</article>")[0]
    as_on_github = MarkdownIt("commonmark").enable("table").render(page.read_text(encoding="utf-8"))
    for element in ("li", "ol", "ul", "table", "tr", "pre", "h2", "h3"):
        opening = re.compile(rf"<{element}[ >]")
        assert len(opening.findall(article)) == len(opening.findall(as_on_github)), element


def test_the_search_index_is_there_for_servers_and_for_disks(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    assert any("slice" in entry["text"] for entry in index["docs"])
    assert (site / "search" / "search_index.js").read_text(encoding="utf-8").startswith("var __index = {")


def test_pictures_are_in_the_page_where_its_colours_reach_them(site: Path) -> None:
    page = read(site, "concepts/slices-and-picks")
    assert '<figure class="picture"><svg role="img" aria-label="' in page
    assert "<style>" not in page


def test_all_pictures_carry_one_and_the_same_style() -> None:
    pictures = sorted((ROOT / "docs" / "pictures").glob("*.svg"))
    styles = {re.search(r"<style>.*?</style>", file.read_text(encoding="utf-8"), re.DOTALL)[0] for file in pictures}  # type: ignore[index]
    assert len(pictures) >= 6
    assert len(styles) == 1


def test_the_site_is_built_into_the_folder_that_the_web_process_serves() -> None:
    from backend.console import docs_site

    assert (ROOT / docs_site.SITE, docs_site.STAMP) == (SITE, STAMP)
