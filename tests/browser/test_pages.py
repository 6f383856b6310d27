"""Every page of the console as a browser sees it, light and dark: nothing on the console, nothing that the policy
refuses, nothing that axe-core calls serious, not wider than its window, not heavier than 120 KB on a cold load (the
spec editor 240).
(`test_first_look` has a few of them daily, without workers and a runner.)"""

import re
from itertools import product

import pytest

from backend.domain.roles import Role
from tests.browser.addresses import NOT_PAGES, Address, console_addresses
from tests.browser.chromium import (
    MOST_BYTES,
    THEMES,
    WIDTHS,
    Theme,
    check_shown,
    overflow_px,
    serious_faults,
    transferred_bytes,
)
from tests.browser.conftest import Opened
from tests.browser.house import House
from tests.profiles import one_in

PAGES = {address.name: address for address in console_addresses() if address.name not in NOT_PAGES}
# pages that are shown to people without a session, or that another page leads to
OUTSIDE = ("/accounts/login/", "/accounts/signup/", "/accounts/password/reset/", "/app/no-such-page")


def path_of(address: Address, house: House) -> str | None:
    """A real address of the page; None where the house has nothing to show on it."""
    path = address.route
    for argument in address.arguments:
        if argument not in house.ids:
            return None
        path = re.sub(rf"<[a-z]+:{argument}>", house.ids[argument], path)
    if address.name == "compile_compare":
        path += f"?compile={house.ids['compile']}&compile={house.ids['other']}"
    return path


@pytest.mark.parametrize(("name", "theme"), one_in(3, product(sorted(PAGES), THEMES)))
def test_a_page_is_quiet_light_and_accessible(name: str, theme: Theme, house: House, signed_in: Opened) -> None:
    path = path_of(PAGES[name], house)
    if path is None:
        pytest.skip(f"the furnished team has nothing for {PAGES[name].route}; the flows open it")
    watched = signed_in(Role.OWNER, theme=theme)
    head = watched.page.request.get(path)
    if head.status == 405 or "text/html" not in head.headers["content-type"]:
        return  # it changes something or is a file, and has no page of its own
    answer = watched.open(path)
    assert answer.status == 200, (path, answer.status)
    check_shown(watched, at_360=theme == "light")


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("path", OUTSIDE)
def test_a_page_for_strangers_too(path: str, theme: Theme, house: House, browser) -> None:
    from tests.browser import chromium

    with chromium.context(browser, house.origin, theme=theme) as context, chromium.watched(context) as watched:
        answer = watched.open(path)
        if path.endswith("no-such-page"):
            watched.expected.append("404")
            assert answer.status == 404
        assert "kolm" in watched.page.title()
        assert transferred_bytes(watched.page) < MOST_BYTES
        for width in WIDTHS:
            watched.page.set_viewport_size({"width": width, "height": 900})
            assert overflow_px(watched.page) == 0, (path, width)
        assert serious_faults(watched.page) == []


def test_no_page_is_left_out(house: House) -> None:
    """Of the pages that the navigation leads to, none is skipped."""
    from backend.console.shell import BUILD, RUN, TEAM

    for place in (*BUILD, *RUN, *TEAM):
        assert path_of(PAGES[place.names[0]], house) is not None
    for name in ("compile", "compile_data", "compile_compare", "artifact", "webhook"):
        assert path_of(PAGES[name], house) is not None, name
