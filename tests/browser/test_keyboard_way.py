"""The way of somebody without a pointer: from the landing page through the log-in and the guided start to the tabs of
the compile. At every stop the focus can be seen."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from backend.domain.roles import Role
from tests.browser import chromium
from tests.browser.house import PASSWORD, members
from tests.browser.main_pages import N_ROWS, TABLE
from tests.web_stack import running_web

MOST_STOPS = 90
# what has the focus is in the window, and it or the label of a field that is not drawn has a ring
_SEEN = """() => {
  const has = document.activeElement;
  if (has === document.body) return true;
  const shown = (one) => {
    const style = getComputedStyle(one), box = one.getBoundingClientRect();
    const isRinged = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
    const isInside = box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth;
    return isRinged && isInside && box.width > 2 && box.height > 2;
  };
  return [has, ...(has.labels ?? []), has.closest("[data-drop-zone]")].some((one) => one && shown(one));
}"""


def tab_to(page: Page, wanted: Locator) -> None:
    """Press Tab until it is there; every stop on the way can be seen."""
    for _ in range(MOST_STOPS):
        page.keyboard.press("Tab")
        assert page.evaluate(_SEEN), page.evaluate("document.activeElement.outerHTML.slice(0, 300)")
        if wanted.evaluate("one => one === document.activeElement"):
            return
    pytest.fail(f"not within {MOST_STOPS} stops: {wanted}")


def test_from_the_landing_page_to_the_tabs_of_a_compile(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "tickets.csv").write_text(TABLE, encoding="utf-8")
    with running_web(forgetful=True, KOLM_DEFAULT_PLAN="team") as web, web.deployment.customer("Acme") as customer:
        email = members(web.deployment, customer)[Role.OWNER]
        with chromium.context(browser, web.deployment.url) as context, chromium.watched(context) as watched:
            watched.open("/")
            log_in_by_keyboard(watched.page, email)
            choose_data(watched.page, tmp_path / "tickets.csv")
            answer_the_rest(watched.page)
            walk_the_tabs(watched.page)


def log_in_by_keyboard(page: Page, email: str) -> None:
    tab_to(page, page.get_by_role("link", name="Log in").first)
    page.keyboard.press("Enter")
    page.wait_for_url("**/accounts/login/**")
    if not page.locator("input[name=login]").evaluate("one => one === document.activeElement"):
        tab_to(page, page.locator("input[name=login]"))
    page.keyboard.type(email)
    tab_to(page, page.locator("input[name=password]"))
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    page.wait_for_url("**/app/")


def choose_data(page: Page, file: Path) -> None:
    tab_to(page, page.locator(".side .nav").get_by_role("link", name="New compile"))
    page.keyboard.press("Enter")
    page.wait_for_url("**/app/start")
    field = page.locator("#data-file")
    tab_to(page, field)
    with page.expect_file_chooser() as chooser:
        page.keyboard.press("Enter")
    chooser.value.set_files(file)
    expect(page.locator("#source")).to_contain_text(f"A table of {N_ROWS} rows")
    role = page.locator("select[name=role]").nth(2)
    tab_to(page, role)
    use = page.get_by_role("button", name=f"Use {N_ROWS} rows")
    tab_to(page, use)
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/app/start\?upload=upl_"))


def answer_the_rest(page: Page) -> None:
    tab_to(page, page.locator("#task"))
    page.keyboard.press("Control+a")
    page.keyboard.type("Route a message by what its customer wants.")
    provider = page.locator("#provider")
    tab_to(page, provider)
    page.keyboard.type(provider.locator("option[value=demo]").inner_text()[:12])
    expect(provider).to_have_value("demo")
    tab_to(page, page.locator("#budget"))
    page.keyboard.press("Control+a")
    page.keyboard.type("2")
    expect(page.locator("#beside")).to_contain_text("The spec is valid")
    expect(page.locator("#model")).to_have_count(0)  # the built-in teacher has one model
    page.wait_for_load_state("networkidle")
    tab_to(page, page.locator("#beside").get_by_role("button", name="Compile"))
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/app/compiles/cmp_"))


def walk_the_tabs(page: Page) -> None:
    for name in ("data", "training", "spec"):
        tab = page.locator(f"#tab-{name}")
        tab_to(page, tab)
        page.keyboard.press("Enter")
        expect(tab).to_have_attribute("aria-current", "page")
        expect(tab).to_be_focused()
        assert page.evaluate(_SEEN)
