"""One deployment and one browser for the whole suite; a context, hence cookies, for every test."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

from backend.domain.roles import Role
from deploy.embedded.ports import free_ports
from tests.acceptance.deployment import Deployment, running
from tests.browser import chromium
from tests.browser.chromium import Theme, Watched
from tests.browser.house import House, furnish, log_in, receiver
from tests.browser.main_pages import MainPages, main_pages

Opened = Callable[..., Watched]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    why = chromium.missing()
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.timeout(600))
            if why:
                item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture(scope="package")
def mail_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mail")


@pytest.fixture(scope="package")
def deployment(mail_folder: Path) -> Iterator[Deployment]:
    """Its name is localhost, because a passkey is bound to a name and an address has none."""
    port = str(free_ports(1)[0])
    with running(
        KOLM_PORT=port,
        KOLM_PUBLIC_URL=f"http://localhost:{port}",
        KOLM_ALLOWED_HOSTS="localhost,127.0.0.1",
        KOLM_MAIL_URL=f"dir:{mail_folder}",
        KOLM_DEFAULT_PLAN="team",
    ) as deployment:
        yield deployment


@pytest.fixture(scope="package")
def house(deployment: Deployment, mail_folder: Path) -> Iterator[House]:
    with receiver(deployment.plan.webhook_origin) as hooks, deployment.customer("Acme Refunds") as customer:
        yield furnish(deployment, customer, deployment.plan.public_url, mail_folder, hooks)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = chromium.launch(playwright)
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def main(browser: Browser) -> Iterator[MainPages]:
    """The main pages over rows that are always the same; no worker runs."""
    with main_pages(browser) as pages:
        yield pages


@pytest.fixture(scope="package")
def cookies(browser: Browser, house: House) -> Callable[[Role], Any]:
    """Each role logs in once, by the form."""
    kept: dict[Role, Any] = {}

    def state(role: Role) -> Any:
        if role not in kept:
            with chromium.context(browser, house.origin) as context, chromium.watched(context) as watched:
                log_in(watched, house.people[role])
                kept[role] = context.storage_state()
        return kept[role]

    return state


@pytest.fixture
def signed_in(browser: Browser, house: House, cookies: Callable[[Role], Any]) -> Iterator[Opened]:
    """`signed_in(Role.VIEWER, theme="dark", width=360)`: a watched page of someone who is logged in."""
    contexts, pages = [], []

    def opened(role: Role = Role.OWNER, *, theme: Theme = "light", width: int = 1440) -> Watched:
        context = chromium.context(browser, house.origin, theme=theme, width=width, storage_state=cookies(role))
        contexts.append(context)
        pages.append(Watched(page=context.new_page()))
        return pages[-1]

    try:
        yield opened
        for watched in pages:
            watched.check()
    finally:
        for context in contexts:
            context.close()


@pytest.fixture
def anonymous(browser: Browser, deployment: Deployment) -> Iterator[Watched]:
    """A page without a session."""
    with chromium.context(browser, deployment.plan.public_url) as context, chromium.watched(context) as watched:
        yield watched
