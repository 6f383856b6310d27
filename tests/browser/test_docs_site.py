"""The documentation in a browser: readable in light and dark, searched without a server's help, without a log-in; and
the definitions of terms in the console, by pointer and by keyboard."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from backend.domain.roles import Role
from deploy.docs_site import building
from tests.acceptance.specs import small_spec
from tests.browser import chromium
from tests.browser.chromium import THEMES, WIDTHS, Theme, Watched, overflow_px, serious_faults
from tests.browser.conftest import log_in
from tests.browser.house import members
from tests.web_stack import WebStack, running_web

PAGES = ("", "quickstart", "concepts/slices-and-picks", "glossary", "reference/spec", "errors#not_found")
MOST_BYTES = 150_000  # of a first load, the theme's script and styles included


@pytest.fixture(scope="module")
def web() -> Iterator[WebStack]:
    assert building.main() == 0
    with running_web(forgetful=True, KOLM_DEFAULT_PLAN="team") as stack:
        yield stack


@pytest.mark.parametrize("theme", THEMES)
def test_pages_are_accessible_and_as_wide_as_their_window(web: WebStack, browser: Browser, theme: Theme) -> None:
    with chromium.context(browser, web.deployment.url, theme=theme) as context, chromium.watched(context) as watched:
        for path in PAGES:
            assert watched.open(f"/docs/{path}").status == 200, path
            watched.page.wait_for_load_state("networkidle")
            assert serious_faults(watched.page) == [], path
            for width in WIDTHS:
                watched.page.set_viewport_size({"width": width, "height": 900})
                assert overflow_px(watched.page) == 0, (path, width)
        watched.check()


def test_a_first_load_is_light(web: WebStack, browser: Browser) -> None:
    with chromium.context(browser, web.deployment.url) as context, chromium.watched(context) as watched:
        watched.open("/docs/quickstart")
        watched.page.wait_for_load_state("networkidle")
        assert chromium.transferred_bytes(watched.page) < MOST_BYTES


def test_the_search_finds_a_term(web: WebStack, browser: Browser) -> None:
    with chromium.context(browser, web.deployment.url) as context, chromium.watched(context) as watched:
        watched.open("/docs/")
        assert "slice" in first_hit(watched.page, "slice").lower()


def test_the_search_works_from_a_disk(web: WebStack, browser: Browser) -> None:
    with chromium.context(browser, web.deployment.url) as context, chromium.watched(context) as watched:
        watched.open(f"file://{building.SITE}/index.html")
        assert "slice" in first_hit(watched.page, "slice").lower()


def first_hit(page: Page, words: str) -> str:
    page.locator("[data-md-component=search-query]").click()
    page.keyboard.type(words)
    hit = page.locator(".md-search-result__link").first
    hit.wait_for(state="visible")
    return hit.inner_text()


def test_the_choice_of_theme_is_the_consoles(web: WebStack, browser: Browser) -> None:
    with chromium.context(browser, web.deployment.url) as context, chromium.watched(context) as watched:
        watched.open("/docs/")
        watched.page.locator("[data-theme-toggle]").click()
        watched.page.locator("[data-theme-toggle]").click()
        assert watched.page.evaluate("document.documentElement.dataset.theme") == "dark"
        watched.open("/accounts/login/")
        assert watched.page.evaluate("document.documentElement.dataset.theme") == "dark"
        watched.page.locator("footer a", has_text="Docs").click()
        watched.page.wait_for_url("**/docs/")


def test_a_term_shows_its_definition_by_keyboard_and_leads_to_the_glossary(web: WebStack, browser: Browser) -> None:
    with web.deployment.customer("Acme") as customer:
        path = f"/app/compiles/{customer.compile(small_spec('queued'))}/data"
        email = members(web.deployment, customer)[Role.OWNER]
        with chromium.context(browser, web.deployment.url) as context, chromium.watched(context) as watched:
            log_in(watched, email)
            watched.open(path)
            term = watched.page.locator("a.term").first
            assert shown_definition(watched, term_hidden=True) == "none"
            term.focus()
            watched.page.keyboard.press("Shift+Tab")
            watched.page.keyboard.press("Tab")
            assert term.get_attribute("aria-description") in shown_definition(watched)
            assert serious_faults(watched.page) == []
            assert overflow_px(watched.page) == 0
            watched.page.keyboard.press("Enter")
            watched.page.wait_for_url("**/docs/glossary#candidate")


def shown_definition(watched: Watched, *, term_hidden: bool = False) -> str:
    """What the style puts behind the first term; `none` while it is neither pointed at nor focused."""
    content: str = watched.page.locator("a.term").first.evaluate("one => getComputedStyle(one, '::after').content")
    return content if not term_hidden or content == "none" else f"shown: {content}"
