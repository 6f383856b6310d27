"""The console in a browser, daily: one logs in and looks at its first pages. They are served by a web process alone, so
that nothing has to be compiled first; all pages and the ways through them are the nightly tier's."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from backend.domain.roles import Role
from tests.acceptance.specs import small_spec
from tests.browser import chromium
from tests.browser.chromium import THEMES, Theme, Watched, check_shown
from tests.browser.conftest import log_in
from tests.browser.house import members
from tests.web_stack import WebStack, running_web

PAGES = ("/app/", "/app/compiles/new", "/app/bills")


@pytest.fixture(scope="module")
def web() -> Iterator[WebStack]:
    with running_web(forgetful=True, KOLM_DEFAULT_PLAN="team") as stack:
        yield stack


def test_the_first_pages_after_a_log_in(web: WebStack, browser: Browser) -> None:
    origin = web.deployment.url
    with web.deployment.customer("Acme") as customer:
        paths = [*PAGES, f"/app/compiles/{customer.compile(small_spec('queued'))}"]
        email = members(web.deployment, customer)[Role.OWNER]
        with chromium.context(browser, origin) as context, chromium.watched(context) as watched:
            log_in(watched, email)
            state = context.storage_state()
        themes: dict[Theme, list[str]] = {theme: paths[i :: len(THEMES)] for i, theme in enumerate(THEMES)}
        for theme, shown in themes.items():
            with chromium.context(browser, origin, theme=theme, storage_state=state) as context:
                for path in shown:
                    look_at(Watched(page=context.new_page()), path, at_360=path == PAGES[0])


def look_at(watched: Watched, path: str, *, at_360: bool) -> None:
    answer = watched.open(path)
    assert answer.status == 200, (path, answer.status)
    check_shown(watched, at_360=at_360)
    watched.page.close()
