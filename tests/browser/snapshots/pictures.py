"""Pictures of the twelve main pages in light and dark, and those that are committed.

`python -m tests.browser.snapshots.pictures` (`make snapshots`) writes the committed ones anew; look at the difference
in git before you commit it.
"""

import io
import json
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from deploy.embedded.home import ROOT
from tests.browser import chromium
from tests.browser.chromium import THEMES, Theme
from tests.browser.main_pages import MainPages, main_pages
from tests.browser.snapshots.comparing import Comparison, compare, save
from tests.browser.snapshots.freezing import fonts_of, freeze, still

BASELINES = Path(__file__).parent / "baselines"
FONTS = BASELINES / "fonts.json"
FAILED = ROOT / "build" / "snapshots"
WIDTH, MOST_HEIGHT = 1280, 1600
MOST_BYTES = 2_500_000  # all of them


def file_of(name: str, theme: Theme) -> Path:
    return BASELINES / f"{name}-{theme}.png"


def take(page: Page, *, css: str = "") -> Image.Image:
    """The open page as it stands, from its top; `css` is laid over it first."""
    freeze(page)
    if css:
        still(page, css)
    height = page.evaluate("document.documentElement.scrollHeight")
    clip = {"x": 0, "y": 0, "width": WIDTH, "height": min(height, MOST_HEIGHT)}
    raw = page.screenshot(full_page=True, clip=clip, animations="disabled", caret="hide", scale="css")  # type: ignore[arg-type]
    return Image.open(io.BytesIO(raw)).convert("RGB")


def compare_with_baseline(image: Image.Image, name: str, theme: Theme) -> Comparison:
    with Image.open(file_of(name, theme)) as expected:
        return compare(image, expected)


def keep_failed(image: Image.Image, comparison: Comparison, name: str, theme: Theme) -> Path:
    """Leave the picture and what differs in it for whoever reads the failure."""
    FAILED.mkdir(parents=True, exist_ok=True)
    save(image, FAILED / f"{name}-{theme}-actual.png")
    comparison.marked.save(file := FAILED / f"{name}-{theme}-difference.png")
    return file


def write_all(browser: Browser, pages: MainPages) -> None:
    BASELINES.mkdir(exist_ok=True)
    for name, path in pages.paths.items():
        for theme in THEMES:
            with pages.context(browser, name, theme=theme, width=WIDTH) as context:
                page = context.new_page()
                page.goto(path)
                fonts = fonts_of(page)
                image = take(page)
            if (file := file_of(name, theme)).exists() and compare_with_baseline(image, name, theme).is_same:
                continue  # a picture that shows the same keeps its bytes
            save(image, file)
            print(f"{file.relative_to(ROOT)} {file.stat().st_size:,} bytes")
        if name == "overview":
            FONTS.write_text(json.dumps(fonts) + "\n", encoding="utf-8")


def main() -> int:
    if why := chromium.missing():
        print(why, file=sys.stderr)
        return 1
    with sync_playwright() as playwright:
        browser = chromium.launch(playwright)
        with main_pages(browser) as pages:
            write_all(browser, pages)
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
