"""The compile page in a browser: it fits, its tabs are links that also come without a page load, losses are drawn,
compiles are picked and compared, amounts stand on one decimal point, times are the reader's."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from backend.console.compiles.tabs import Tab
from backend.domain.roles import Role
from deploy.embedded.home import ROOT
from tests.browser import chromium
from tests.browser.chromium import Watched, check_shown
from tests.browser.conftest import log_in
from tests.browser.house import members
from tests.web_stack import running_web

TWO_SCREENS = 2 * 900


@pytest.fixture(scope="module")
def shown(browser: Browser) -> Iterator[dict[str, Any]]:
    """A web process with judged compiles, and someone who is logged in: `open(path)` is a watched page."""
    with running_web(forgetful=True, KOLM_DEFAULT_PLAN="team") as web, web.deployment.customer("Acme") as customer:
        command = [sys.executable, "-m", "tests.browser.judged_compiles", str(customer.tenant_id)]
        environment = web.deployment.plan.backend_environment()
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        email = members(web.deployment, customer)[Role.OWNER]
        with chromium.context(browser, web.deployment.url) as context, chromium.watched(context) as watched:
            log_in(watched, email)
            state = context.storage_state()
        yield json.loads(done.stdout) | {"origin": web.deployment.url, "state": state}


@pytest.fixture
def opened(shown: dict[str, Any], browser: Browser) -> Iterator[Any]:
    contexts, pages = [], []

    def watched(**more: Any) -> Watched:
        context = chromium.context(browser, shown["origin"], storage_state=shown["state"], **more)
        contexts.append(context)
        pages.append(Watched(page=context.new_page()))
        return pages[-1]

    try:
        yield watched
        for page in pages:
            page.check()
    finally:
        for context in contexts:
            context.close()


def ids_of(shown: dict[str, Any]) -> list[str]:
    return [*shown["passed"], shown["failed"], shown["running"]]


def test_no_compile_page_is_over_two_screens_before_its_tabs(shown: dict[str, Any], opened: Any) -> None:
    watched = opened()
    for id in ids_of(shown):
        watched.open(f"/app/compiles/{id}")
        box = watched.page.locator("nav.tabs").bounding_box()
        assert box["y"] < TWO_SCREENS, (id, box)
    check_shown(watched, at_360=True)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_tab_is_well_shown(shown: dict[str, Any], opened: Any, theme: Any) -> None:
    watched = opened(theme=theme)
    for i, tab in enumerate(Tab):
        watched.open(f"/app/compiles/{shown['passed'][0]}?tab={tab}")
        check_shown(watched, at_360=bool(i % 2))


def test_tabs_come_without_a_page_load_and_the_way_back_works(shown: dict[str, Any], opened: Any) -> None:
    page: Page = opened().page
    page.goto(f"/app/compiles/{shown['passed'][0]}")
    page.evaluate("window.isTheSamePage = true")
    page.locator("#tab-selection").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#tab-selection")).to_have_attribute("aria-current", "page")
    expect(page.locator("#map")).to_be_visible()
    expect(page.locator("#tab-selection")).to_be_focused()
    assert page.url.endswith("?tab=selection")
    assert page.evaluate("window.isTheSamePage")
    page.go_back()
    expect(page.locator("#tab-gate")).to_have_attribute("aria-current", "page")
    expect(page.locator("#gate")).to_be_visible()
    page.go_forward()
    expect(page.locator("#map")).to_be_visible()


def test_tabs_are_links_without_a_script(shown: dict[str, Any], browser: Browser) -> None:
    with chromium.context(browser, shown["origin"], storage_state=shown["state"], java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(f"/app/compiles/{shown['passed'][0]}")
        page.locator("#tab-receipts").click()
        expect(page.locator("#receipts")).to_be_visible()
        expect(page.locator("time").first).to_have_text(re.compile(r"^\d+ \w{3} \d{4} \d\d:\d\d UTC$|ago$|just now$"))


def test_the_loss_is_drawn_while_it_trains(shown: dict[str, Any], opened: Any) -> None:
    page: Page = opened().page
    page.goto(f"/app/compiles/{shown['running']}?tab=training")
    expect(page.locator(".plot canvas")).to_be_visible()
    expect(page.locator("#training")).to_contain_text("at step 19 of 40")


def test_compiles_are_picked_in_the_list_and_compared(shown: dict[str, Any], opened: Any) -> None:
    watched = opened()
    page: Page = watched.page
    watched.open("/app/compiles")
    button = page.locator("[data-compare]")
    expect(button).to_be_disabled()
    for id in [*shown["passed"], shown["failed"]]:
        page.check(f"#c-{id}")
    button.click()
    page.wait_for_url("**/app/compiles/compare?ids=*")
    expect(page.locator("h1")).to_have_text("3 compiles")
    expect(page.locator("svg circle.s1")).to_have_count(3)
    check_shown(watched, at_360=True)


def test_amounts_of_a_column_stand_on_one_decimal_point(shown: dict[str, Any], opened: Any) -> None:
    page: Page = opened().page
    page.goto(f"/app/compiles/{shown['passed'][0]}?tab=steps")
    ends = page.evaluate(
        """() => [...document.querySelectorAll("#steps tbody tr, #steps tfoot tr")].map((row) => {
          const text = row.cells[4].querySelector("data.usd").firstChild, range = document.createRange();
          const dot = text.data.indexOf("."), at = dot < 0 ? text.data.length : dot;
          range.setStart(text, at); range.setEnd(text, at);
          return Math.round(range.getBoundingClientRect().left);
        })"""
    )
    assert max(ends) - min(ends) <= 1, ends
    assert page.locator("#steps tfoot data.usd").first.get_attribute("title") == "$0.045912"


def test_times_are_in_the_readers_zone(shown: dict[str, Any], browser: Browser) -> None:
    with browser.new_context(
        base_url=shown["origin"], storage_state=shown["state"], locale="de-DE", timezone_id="America/New_York"
    ) as context:
        page = context.new_page()
        page.goto(f"/app/compiles/{shown['passed'][0]}")
        time = page.locator(".lede time").first
        at = time.get_attribute("datetime")
        local = page.evaluate(
            "(at) => new Intl.DateTimeFormat([], {dateStyle: 'medium', timeStyle: 'short'}).format(new Date(at))",
            at,
        )
        expect(time).to_have_text(local)


def test_the_last_event_is_shown_however_soon_it_follows_another(shown: dict[str, Any], opened: Any) -> None:
    """A compile ends in the second in which something else happened: the head must not stay what it was."""
    watched = opened()
    watched.open(f"/app/compiles/{shown['running']}")
    page = watched.page
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if request.url.endswith("/head") else None)
    page.evaluate(
        """async () => {
             const stream = document.querySelector("[data-stream]").kolmStream;
             stream.tell(100001, "step.started", {});
             await new Promise((go) => setTimeout(go, 500));
             window.__asked_before = performance.getEntriesByType("resource").length;
             stream.tell(100002, "compile.succeeded", {});
           }"""
    )
    expect(page.locator("[data-stream]").first).to_have_attribute("data-state", "ended")
    page.wait_for_function(
        """() => performance.getEntriesByType("resource").slice(window.__asked_before)
                 .some((one) => one.name.endsWith("/head"))""",
        timeout=10_000,
    )
    assert len(asked) >= 2
