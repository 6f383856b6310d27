"""The page at `/`, and the log-in that leads back, in a browser; daily pages are in test_first_look."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from backend.domain.roles import Role
from tests.browser import chromium
from tests.browser.chromium import THEMES, Theme, check_shown
from tests.browser.house import PASSWORD, members
from tests.web_stack import WebStack, running_web

WANTED = "/app/compiles/new?example=spam"


@pytest.fixture(scope="module")
def web() -> Iterator[WebStack]:
    with running_web(forgetful=True, KOLM_DEFAULT_PLAN="team") as stack:
        yield stack


@pytest.mark.parametrize("theme", THEMES)
def test_the_landing_page_is_one_screen_and_reads_in_both_themes(web: WebStack, browser: Browser, theme: Theme) -> None:
    with (
        chromium.context(browser, web.deployment.url, theme=theme) as context,
        chromium.watched(context) as watched,
    ):
        assert watched.open("/").status == 200
        check_shown(watched, at_360=True)
        watched.page.set_viewport_size({"width": 1440, "height": 900})
        bottom = watched.page.locator(".figures dl").bounding_box()
        assert bottom is not None
        assert bottom["y"] + bottom["height"] <= 900


def test_it_says_the_same_without_scripts(web: WebStack, browser: Browser) -> None:
    with chromium.context(browser, web.deployment.url, java_script_enabled=False) as context:
        page = context.new_page()
        page.goto("/")
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.locator(".figures .stat")).to_have_count(3)
        page.get_by_role("link", name="Sign up and try a task").click()
        expect(page).to_have_url(f"{web.deployment.url}/accounts/signup/?next=/app/gallery")


def test_whoever_asked_for_a_page_has_it_after_the_log_in(web: WebStack, browser: Browser) -> None:
    origin = web.deployment.url
    with web.deployment.customer("Acme") as customer:
        email = members(web.deployment, customer)[Role.OWNER]
        with chromium.context(browser, origin) as context, chromium.watched(context) as watched:
            watched.open(WANTED)
            watched.page.fill("input[name=login]", email)
            watched.page.fill("input[name=password]", PASSWORD)
            watched.page.get_by_role("button", name="Log in", exact=True).click()
            expect(watched.page).to_have_url(f"{origin}{WANTED}")
            assert "\nname: spam\n" in watched.page.locator("textarea#spec").input_value()
