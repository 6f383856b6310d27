"""A file that is too large, in a browser: said before it is sent, and without scripts by a page instead of a broken
connection."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from backend.domain.roles import Role
from tests.browser import chromium
from tests.browser.conftest import log_in
from tests.browser.house import members
from tests.web_stack import running_web

N_BYTES = 200_000_000


@pytest.fixture(scope="module")
def shown(browser: Browser) -> Iterator[dict[str, Any]]:
    with running_web(forgetful=True, KOLM_DEFAULT_PLAN="team") as web, web.deployment.customer("Acme") as customer:
        email = members(web.deployment, customer)[Role.OWNER]
        with chromium.context(browser, web.deployment.url) as context, chromium.watched(context) as watched:
            log_in(watched, email)
            state = context.storage_state()
        yield {"origin": web.deployment.url, "state": state}


@pytest.fixture
def large(tmp_path: Path) -> Path:
    file = tmp_path / "large.csv"
    with file.open("wb") as rows:
        rows.write(b"text,label\n")
        rows.truncate(N_BYTES)
    return file


@pytest.mark.parametrize("path", ["/app/uploads", "/app/start"])
def test_without_scripts_a_page_says_the_limit_and_what_to_do(
    shown: dict[str, Any], browser: Browser, large: Path, path: str
) -> None:
    with chromium.context(browser, shown["origin"], storage_state=shown["state"], java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(path)
        page.set_input_files("#data-file", large)
        page.get_by_role("button", name="Store it").click()
        expect(page.locator("h1")).to_have_text("This is too large")
        expect(page.locator("[data-problem=payload_too_large]")).to_contain_text("at most 32 MB")
        expect(page.locator("[data-problem=payload_too_large]")).to_contain_text("kolm init")


def test_with_scripts_it_is_said_before_it_is_sent(shown: dict[str, Any], browser: Browser, large: Path) -> None:
    with (
        chromium.context(browser, shown["origin"], storage_state=shown["state"]) as context,
        chromium.watched(context) as watched,
    ):
        watched.open("/app/uploads")
        asked: list[str] = []
        watched.page.on("request", lambda request: asked.append(request.url))
        watched.page.set_input_files("#data-file", large)
        expect(watched.page.locator("[data-drop-fault]")).to_contain_text("at most 32 are read here")
        assert not asked
