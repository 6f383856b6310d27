"""Everything by the keyboard, as the help dialog promises; focus can be seen; nothing is spoken too often."""

import pytest
from playwright.sync_api import Page, expect

from backend.domain.roles import Role
from tests.acceptance.deployment import eventually
from tests.browser.conftest import Opened
from tests.browser.house import House


def at(page: Page, path: str) -> None:
    page.wait_for_url(f"**{path}")


def test_letters_lead_to_pages(signed_in: Opened) -> None:
    watched = signed_in(Role.OWNER)
    watched.open("/app/")
    for keys, path in (("gc", "/app/compiles"), ("gw", "/app/webhooks"), ("n", "/app/start"), ("go", "/app/")):
        for key in keys:
            watched.page.keyboard.press(key)
        at(watched.page, path)


def test_slash_searches_and_an_id_leads_to_its_page(signed_in: Opened, house: House) -> None:
    watched = signed_in(Role.VIEWER)
    page = watched.page
    watched.open("/app/")
    page.keyboard.press("/")
    expect(page.locator(".side [data-search]")).to_be_focused()
    page.keyboard.type(house.ids["artifact"])
    page.keyboard.press("Enter")
    at(page, f"/app/artifacts/{house.ids['artifact']}")
    page.keyboard.press("/")
    page.keyboard.type("refund-router-str")
    page.keyboard.press("Enter")
    at(page, "/app/compiles?q=refund-router-str")
    expect(page.locator("tr[data-row]")).to_have_count(1)


def test_slash_opens_the_menu_of_a_narrow_window(signed_in: Opened) -> None:
    watched = signed_in(Role.OWNER, width=360)
    watched.open("/app/artifacts")
    watched.page.keyboard.press("/")
    focused = "document.activeElement.matches('[data-search]') && document.activeElement.offsetParent !== null"
    eventually(lambda: watched.page.evaluate(focused), within_s=10, what="the search field has the focus")


def test_rows_are_walked_and_opened(signed_in: Opened) -> None:
    watched = signed_in(Role.DEVELOPER)
    page = watched.page
    watched.open("/app/compiles")
    rows = page.locator("tr[data-row]")
    assert rows.count() >= 3
    page.keyboard.press("j")
    expect(rows.nth(0)).to_be_focused()
    for key in "jkj":
        page.keyboard.press(key)
    expect(rows.nth(1)).to_be_focused()
    expect(rows.nth(1)).to_have_class("is-at")
    href = rows.nth(1).get_attribute("data-href")
    assert href
    page.keyboard.press("Enter")
    at(page, href)


def test_a_question_mark_opens_help_and_escape_closes_it(signed_in: Opened) -> None:
    watched = signed_in(Role.OWNER)
    page = watched.page
    watched.open("/app/drafts")
    page.keyboard.press("?")
    dialog = page.locator("dialog#help")
    expect(dialog).to_be_visible()
    expect(dialog).to_contain_text("Compiles")
    page.keyboard.press("g")
    page.keyboard.press("c")  # not while a dialog is open
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    assert page.url.endswith("/app/drafts")


def test_letters_that_are_typed_go_nowhere(signed_in: Opened) -> None:
    watched = signed_in(Role.OWNER)
    page = watched.page
    watched.open("/app/compiles/new")
    page.locator(".cm-content").fill("")
    page.locator(".cm-content").press_sequentially("name: gc?/njk")
    assert page.locator("textarea#spec").input_value() == "name: gc?/njk"
    assert page.url.endswith("/app/compiles/new")


def test_tab_begins_with_the_skip_link_and_every_stop_can_be_seen(signed_in: Opened) -> None:
    watched = signed_in(Role.OWNER)
    page = watched.page
    watched.open("/app/bills")
    page.keyboard.press("Tab")
    expect(page.locator("a.skip")).to_be_focused()
    expect(page.locator("a.skip")).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("main#content")).to_be_focused()
    seen = """() => { const e = document.activeElement, s = getComputedStyle(e);
        return e === document.body || (s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2); }"""
    for _ in range(25):
        page.keyboard.press("Tab")
        assert page.evaluate(seen), page.evaluate("document.activeElement.outerHTML.slice(0, 200)")


def test_an_id_is_copied(signed_in: Opened, house: House) -> None:
    watched = signed_in(Role.VIEWER)
    watched.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    watched.open(f"/app/compiles/{house.ids['compile']}")
    watched.page.locator(f"button[data-copy='{house.ids['compile']}']").first.click()
    expect(watched.page.locator("#live")).to_have_text("Copied")
    assert watched.page.evaluate("navigator.clipboard.readText()") == house.ids["compile"]


def test_a_theme_is_kept_and_there_before_the_page_is_painted(signed_in: Opened) -> None:
    watched = signed_in(Role.OWNER, theme="light")
    page = watched.page
    watched.open("/app/")
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    light = page.evaluate(ground)
    toggle = page.locator(".side [data-theme-toggle]")
    for words in ("Theme: light", "Theme: dark"):
        toggle.click()
        expect(toggle).to_have_text(words)
    assert page.evaluate(ground) != light
    # the script stands before the style sheet and is not deferred: the first paint has the theme already
    head = page.evaluate(
        "[...document.head.children].map(e => (e.src || e.href || '') + (e.defer || e.async ? ' later' : ''))"
    )
    theme = next(i for i, name in enumerate(head) if "console/theme" in name)
    assert not head[theme].endswith(" later")
    assert theme < next(i for i, name in enumerate(head) if ".css" in name)
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate(ground) != light


@pytest.mark.nightly
def test_at_most_one_sentence_is_spoken_in_five_seconds(signed_in: Opened) -> None:
    watched = signed_in(Role.OWNER)
    watched.open("/app/")
    heard = watched.page.evaluate(
        """async () => {
            const region = document.querySelector('[data-live="polite"]'), heard = [];
            const note = () => heard.push([performance.now(), region.textContent]);
            new MutationObserver(note).observe(region, {childList: true});
            for (let i = 0; i < 60; i++) { kolm.say(`step ${i}`); await new Promise(r => setTimeout(r, 100)); }
            return heard;
        }"""
    )
    assert len(heard) == 2, heard
    assert heard[1][0] - heard[0][0] >= 4_900
    assert int(heard[1][1].removeprefix("step ")) > 40  # the newest one, not the next one


def test_without_scripts_pages_and_forms_work(browser, house: House, cookies) -> None:
    from tests.browser import chromium

    state = cookies(Role.OWNER)
    with chromium.context(browser, house.origin, storage_state=state, java_script_enabled=False) as context:
        page = context.new_page()
        for path in ("/app/", "/app/compiles", f"/app/compiles/{house.ids['compile']}", "/app/bills", "/app/team"):
            answer = page.goto(path)
            assert answer is not None
            assert answer.status == 200
            assert page.locator("h1").inner_text()
        page.goto("/app/compiles")
        page.locator(".side [data-search]").fill(house.ids["compile"])
        page.locator(".side [data-search]").press("Enter")
        at(page, f"/app/compiles/{house.ids['compile']}")


def test_menus_close_on_escape_and_on_a_click_elsewhere(signed_in: Opened) -> None:
    watched = signed_in(Role.OWNER)
    page = watched.page
    watched.open("/app/")
    menu = page.locator(".side details.menu")
    page.locator(".side details.menu > summary").click()
    expect(menu).to_have_attribute("open", "")
    page.keyboard.press("Escape")
    expect(menu).not_to_have_attribute("open", "")
    page.locator(".side details.menu > summary").click()
    page.locator("h1").click()
    expect(menu).not_to_have_attribute("open", "")
