"""The pictures of docs/screenshots, for the README: `python -m tests.browser.screenshots`.

A deployment is started, the example spec is compiled three times in earnest (the second time with drafts, the third
while the pictures are taken), and the browser looks. Nothing in a picture is invented.
"""

import sys
import tempfile
from pathlib import Path

import yaml
from playwright.sync_api import Browser, sync_playwright

from backend.domain.roles import Role
from deploy.embedded.home import ROOT
from deploy.embedded.ports import free_ports
from tests.acceptance.deployment import running
from tests.browser import chromium
from tests.browser.conftest import log_in
from tests.browser.house import House, furnish, receiver

TARGET = ROOT / "docs" / "screenshots"
MOST_BYTES = 250_000
EXAMPLE = ROOT / "examples" / "refund-router.yaml"
SIZES = (("1440-light", "light", 1440, 1000), ("1440-dark", "dark", 1440, 1000), ("360", "light", 360, 760))


def main() -> int:
    if why := chromium.missing():
        print(why, file=sys.stderr)
        return 1
    TARGET.mkdir(parents=True, exist_ok=True)
    port = str(free_ports(1)[0])
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        mail = Path(folder)
        public = {"KOLM_PORT": port, "KOLM_PUBLIC_URL": f"http://localhost:{port}", "KOLM_MAIL_URL": f"dir:{mail}"}
        with (
            running(KOLM_DEFAULT_PLAN="team", **public) as deployment,
            receiver(deployment.plan.webhook_origin) as hooks,
            deployment.customer("Acme Refunds") as customer,
        ):
            example = yaml.safe_load(EXAMPLE.read_text())
            customer.succeeded(customer.compile(example), within_s=500)
            house = furnish(deployment, customer, deployment.plan.public_url, mail, hooks)
            again = customer.succeeded(customer.compile(example), within_s=500)
            customer.compile(example)
            browser = chromium.launch(playwright)
            take(browser, house, again["id"], example)
            browser.close()
    return 0


def take(browser: Browser, house: House, compile_id: str, example: dict[str, object]) -> None:
    with chromium.context(browser, house.origin) as context, chromium.watched(context) as watched:
        log_in(watched, house.people[Role.OWNER])
        state = context.storage_state()
    pages = {
        "overview": "/app/",
        "compile": f"/app/compiles/{compile_id}",
        "selection": f"/app/compiles/{compile_id}#map",
        "data": f"/app/compiles/{compile_id}/data",
        "new-compile": "/app/compiles/new",
        "draft-cache": "/app/drafts",
        "bills": "/app/bills",
        "webhook": f"/app/webhooks/{house.endpoint}",
    }
    for name, path in pages.items():
        for suffix, theme, width, height in SIZES:
            with chromium.context(browser, house.origin, theme=theme, width=width, storage_state=state) as context:  # type: ignore[arg-type]
                page = context.new_page()
                page.set_viewport_size({"width": width, "height": height})
                page.goto(path)
                if name == "new-compile":
                    page.locator(".cm-content").fill(yaml.safe_dump(example, sort_keys=False, allow_unicode=True))
                    page.wait_for_timeout(3_000)
                page.wait_for_timeout(700)
                file = TARGET / f"{name}-{suffix}.png"
                page.screenshot(path=file)
                assert file.stat().st_size < MOST_BYTES, (file, file.stat().st_size)
                print(f"{file.relative_to(ROOT)} {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    sys.exit(main())
