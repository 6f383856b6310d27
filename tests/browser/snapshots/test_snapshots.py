"""The twelve main pages look as they are committed, in light and dark; and a page that was changed is refused.

What to do with a difference that is wanted is in docs/development.md.
"""

import json
from pathlib import Path

import pytest
from PIL import Image, ImageFilter
from playwright.sync_api import Browser, Page

from tests.browser.chromium import THEMES, Theme
from tests.browser.main_pages import MainPages
from tests.browser.snapshots import pictures
from tests.browser.snapshots.comparing import MOST_CHANGED, compare, save
from tests.browser.snapshots.freezing import fonts_of

NAMES = (
    "landing",
    "log-in",
    "overview",
    "guided-start",
    "data",
    "new-compile",
    "compile",
    "artifact",
    "deployment",
    "playground",
    "bills",
    "docs",
)
FAULTS = {
    "the navigation is hidden": ("overview", ".side { visibility: hidden }"),
    "the heading is gone": ("bills", "h1 { display: none }"),
    "all is three pixels lower": ("data", "main { padding-top: calc(3px + var(--gap, 40px)) !important }"),
    "the main button has another colour": ("log-in", ".btn.primary { background: #0a7a3a !important }"),
    "the ground is a little darker": ("compile", ":root, body { background: #dcdcd8 !important }"),
    "letters are larger": ("docs", ".md-typeset, .md-typeset p { font-size: 0.95rem !important }"),
    "a column is left out": ("deployment", ".kv dd { display: none }"),
}


@pytest.fixture(scope="module")
def known_fonts(main: MainPages, browser: Browser) -> None:
    with main.context(browser, "log-in") as context:
        page = context.new_page()
        page.goto(main.paths["log-in"])
        here, there = fonts_of(page), json.loads(pictures.FONTS.read_text(encoding="utf-8"))
    if here != there:
        pytest.skip(
            f"this machine's system fonts are others than those of the committed pictures (a line is {here} px wide, "
            f"{there} there); install fonts-dejavu, or `make snapshots` and compare with git"
        )


def opened(context: object, path: str) -> Page:
    page: Page = context.new_page()  # type: ignore[attr-defined]
    page.goto(path)
    return page


@pytest.mark.usefixtures("known_fonts")
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", NAMES)
def test_a_page_looks_as_it_did(name: str, theme: Theme, main: MainPages, browser: Browser) -> None:
    with main.context(browser, name, theme=theme, width=pictures.WIDTH) as context:
        image = pictures.take(opened(context, main.paths[name]))
    comparison = pictures.compare_with_baseline(image, name, theme)
    if not comparison.is_same:
        difference = pictures.keep_failed(image, comparison, name, theme)
        pytest.fail(
            f"{name} in {theme}: {comparison.changed:.2%} of it differ from {pictures.file_of(name, theme)} (at most "
            f"{MOST_CHANGED:.2%}); see {difference}. Is it wanted? `make snapshots` writes the committed pictures anew"
        )


@pytest.mark.usefixtures("known_fonts")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_page_that_was_changed_is_refused(fault: str, main: MainPages, browser: Browser) -> None:
    name, css = FAULTS[fault]
    with main.context(browser, name, width=pictures.WIDTH) as context:
        image = pictures.take(opened(context, main.paths[name]), css=css)
    comparison = pictures.compare_with_baseline(image, name, "light")
    assert comparison.changed > 2 * MOST_CHANGED, comparison.changed


def test_the_edge_of_a_letter_is_no_difference_and_a_moved_line_is(tmp_path: Path) -> None:
    file = pictures.file_of("bills", "light")
    with Image.open(file) as committed:
        page = committed.convert("RGB")
    save(page, tmp_path / "again.png")
    with Image.open(tmp_path / "again.png") as again:
        assert compare(again, page).is_same
    assert compare(page.filter(ImageFilter.GaussianBlur(0.35)), page).is_same
    assert not compare(page.transform(page.size, Image.Transform.AFFINE, (1, 0, 0, 0, 1, 4)), page).is_same
    assert not compare(page.crop((0, 0, page.width, page.height - 40)), page).is_same


def test_the_committed_pictures_are_those_pages_and_are_light(main: MainPages) -> None:
    assert set(main.paths) == set(NAMES)
    files = sorted(pictures.BASELINES.glob("*.png"))
    assert files == sorted(pictures.file_of(name, theme) for name in NAMES for theme in THEMES)
    assert sum(file.stat().st_size for file in files) < pictures.MOST_BYTES
