"""The main pages, and those around them: how much they weigh, that nobody is kept out, and that they are read without
JavaScript. How they look is in `snapshots`."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, Page, expect

from backend.console.compiles.tabs import Tab
from tests.browser.chromium import (
    THEMES,
    Theme,
    Watched,
    overflow_px,
    serious_faults,
    transferred_bytes,
)
from tests.browser.main_pages import MainPages

MOST_BYTES = 150_000  # document, scripts and styles of a first visit, as they travel
WITH_EDITOR = frozenset({"new-compile"})


def all_paths(main: MainPages) -> dict[str, str]:
    return main.paths | main.more


def test_no_page_but_the_editors_weighs_150_kb(main: MainPages, browser: Browser) -> None:
    weights: dict[str, int] = {}
    for name, path in all_paths(main).items():
        with main.context(browser, name) as context:  # a new browser: nothing is in its cache
            page = context.new_page()
            page.goto(path)
            if "data-stream" not in page.content():
                page.wait_for_load_state("networkidle")
            weights[name] = transferred_bytes(page)
    heavy = {name: size for name, size in weights.items() if size >= MOST_BYTES}
    assert set(heavy) == WITH_EDITOR, "\n".join(f"{size:>9,} bytes {name}" for name, size in weights.items())


@pytest.mark.parametrize("theme", THEMES)
def test_every_page_is_accessible_on_a_desk_and_on_a_phone(theme: Theme, main: MainPages, browser: Browser) -> None:
    faults: dict[str, object] = {}
    for name, path in all_paths(main).items():
        for width in (1440, 360):
            with main.context(browser, name, theme=theme, width=width) as context:
                watched = Watched(page=context.new_page())
                assert watched.open(path).status == 200, path
                if "data-stream" not in watched.page.content():
                    watched.page.wait_for_load_state("networkidle")
                watched.check()
                found = serious_faults(watched.page)
                if (wider := overflow_px(watched.page)) > 0:
                    found.append(f"{wider} px wider than its window")
                if found:
                    faults[f"{name} at {width}"] = found
    assert faults == {}


# --- without JavaScript --------------------------------------------------------------------------------------

READS = {
    "landing": ("Pricing", "Log in"),
    "pricing": ("Prices",),
    "overview": ("Spent this month", "Compiling now", "Last results", "router", "running"),
    "compile": ("the gate is passed", "Quality card", "Gate"),
    "data": ("tickets", "examples", "120"),
    "upload": ("tickets", "refund", "status"),
    "bills": ("synthesis", "$1.62132", "By day"),
    "docs": ("Quickstart", "kolm"),
    "compare": ("router",),
    "artifact": ("SHA-256", "Lineage", "router"),
    "deployment": ("router", "curl", "active"),
    "new-compile": ("refund-router", "Check"),
    "guided-start": ("Your data", "The teacher", "The budget", "Estimate"),
}
# of each tab of a compile, words that stand in it alone
TABS = {
    Tab.STEPS: ("synthesis", "labeling", "packaging"),
    Tab.DATA: ("gold", "refund"),
    Tab.SELECTION: ("slice-0", "k_center"),
    Tab.LABELS: ("Labels",),
    Tab.TRAINING: ("Training",),
    Tab.GATE: ("accuracy",),
    Tab.WRONG: ("wrong answers", "all held-out answers"),
    Tab.DRAFTS: ("drafts",),
    Tab.RECEIPTS: ("slicing", "digest of the statement"),
    Tab.SPEC: ("Does the customer ask for money back?",),
}


@pytest.fixture
def unscripted(main: MainPages, browser: Browser) -> Callable[[str, str], Page]:
    contexts = []

    def opened(name: str, path: str) -> Page:
        contexts.append(main.context(browser, name, java_script_enabled=False))
        page: Page = contexts[-1].new_page()
        answer = page.goto(path)
        assert answer is not None
        assert answer.status == 200, path
        return page

    yield opened
    for context in contexts:
        context.close()


def drawn(page: Page) -> str:
    """The text of the page's main part that is drawn or behind a `details`, which opens without a script."""
    for closed in page.locator("main details:not([open]) > summary").all():
        if closed.is_visible():
            closed.click()
    main = page.locator("main")
    return (main if main.count() else page.locator("body")).inner_text()


def test_pages_are_read_without_a_script(main: MainPages, unscripted: Callable[[str, str], Page]) -> None:
    missing = []
    for name, words in READS.items():
        page = unscripted(name, all_paths(main)[name])
        fields = [field.input_value() for field in page.locator("main textarea").all()]
        text = drawn(page) + " ".join(fields) + page.locator("body").inner_text()
        missing += [(name, word) for word in words if word.lower() not in text.lower()]
    assert missing == []


def test_every_tab_of_a_compile_is_read_without_a_script(
    main: MainPages, unscripted: Callable[[str, str], Page]
) -> None:
    page, missing = unscripted("compile", main.paths["compile"]), []
    for tab, words in TABS.items():
        page.locator(f"#tab-{tab}").click()
        expect(page.locator(f"#tab-{tab}")).to_have_attribute("aria-current", "page")
        text = drawn(page).lower()
        missing += [(tab, word) for word in words if word.lower() not in text]
    assert missing == []


def test_nothing_that_waits_for_a_script_stands_on_a_page_without_one(
    main: MainPages, unscripted: Callable[[str, str], Page]
) -> None:
    """No amount, time or list is filled in later: what a script fetches is on the page in another way."""
    for name in ("overview", "compile", "bills", "data", "landing", "pricing"):
        page = unscripted(name, all_paths(main)[name])
        for indicator in page.locator(".htmx-indicator").all():
            expect(indicator).to_be_hidden()
        times = page.locator("main time").all_inner_texts()
        assert all(times), name
