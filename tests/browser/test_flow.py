"""The whole way of a new customer, in a real browser on a running deployment: sign-up, the e-mail, a team, a key, a
compile watched while it runs, the file and its proof, the bill; then a second factor, a passkey and a webhook."""

import base64
import email
import email.policy
import hashlib
import hmac
import json
import re
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect
from standardwebhooks import Webhook

from backend.console.templatetags.kolm import money
from backend.domain.roles import Role
from deploy.embedded.home import ROOT
from tests.acceptance.deployment import eventually
from tests.acceptance.specs import small_spec
from tests.browser import chromium
from tests.browser.chromium import Watched
from tests.browser.conftest import Opened, log_in
from tests.browser.house import House, members

pytestmark = [pytest.mark.timeout(1_200)]

NEW_PASSWORD = "a quiet blueprint 42"
BUSY_MS = 200_000  # ends a failure; a machine whose cores are shared by ten suites takes minutes for a compile


def letter_to(address: str, folder: Path, *, subject: str = "") -> str:
    """The newest e-mail to an address, as its reader sees it."""

    def look() -> str | None:
        for path in sorted(folder.iterdir(), key=lambda p: p.stat().st_mtime, reverse=True):
            for raw in path.read_bytes().split(b"-" * 79 + b"\n"):
                if not raw.strip():
                    continue
                message = email.message_from_bytes(raw, policy=email.policy.default)
                if address in str(message["To"]) and subject in str(message["Subject"]):
                    body = message.get_body(("plain",))
                    return None if body is None else str(body.get_content())
        return None

    return eventually(look, within_s=15, what=f"an e-mail to {address}")


def press(page: Page, name: str) -> None:
    page.locator("main").get_by_role("button", name=name, exact=True).first.click()


@pytest.mark.nightly
def test_from_sign_up_to_the_bill(browser: Browser, house: House, tmp_path: Path) -> None:
    with chromium.context(browser, house.origin) as context, chromium.watched(context) as watched:
        address = f"ada-{int(time.time())}@newcomer.example"
        sign_up(watched, address, house.mail)
        secret = make_key(watched)
        compile_id = compile_and_watch(watched)
        listed = httpx.get(f"{house.deployment.url}/v1/compiles", headers={"Authorization": f"Bearer {secret}"})
        assert [row["id"] for row in listed.json()["data"]] == [compile_id]
        download_and_verify(watched, house, tmp_path)
        read_the_bill(watched, listed.json()["data"][0]["spent_microusd"])


def sign_up(watched: Watched, address: str, mail: Path) -> None:
    page = watched.page
    watched.open("/accounts/signup/")
    page.fill("input[name=email]", address)
    page.fill("input[name=password1]", NEW_PASSWORD)
    press(page, "Sign up")
    expect(page.locator("main")).to_contain_text("e-mail")
    expect(page.locator("main")).to_contain_text(
        str(mail)
    )  # this deployment keeps its e-mails in a folder, and says so
    link = re.search(r"http://\S+/accounts/confirm-email/\S+", letter_to(address, mail))
    assert link, letter_to(address, mail)
    watched.open(link.group())
    press(page, "Confirm")
    if "/accounts/login" in page.url:
        page.fill("input[name=login]", address)
        page.fill("input[name=password]", NEW_PASSWORD)
        press(page, "Log in")
    page.wait_for_url("**/app/welcome")
    page.fill("input[name=name]", "Newcomer & Sons")
    press(page, "Create the team")
    page.wait_for_url("**/app/")
    expect(page.locator("h1")).to_have_text("Newcomer & Sons")
    expect(page.get_by_role("heading", name="Get started")).to_be_visible()
    expect(page.locator("main")).to_contain_text("curl -s ")


def make_key(watched: Watched) -> str:
    page = watched.page
    watched.open("/app/api_keys")
    page.fill("input[name=name]", "laptop")
    press(page, "Create the key")
    shown = page.locator("[data-copy^=sk_]").first
    secret = shown.get_attribute("data-copy") or ""
    assert re.fullmatch(r"sk_live_[0-9A-Za-z]{36}", secret)
    watched.open("/app/api_keys")
    assert secret not in page.content()  # shown once
    return secret


def compile_and_watch(watched: Watched) -> str:
    """Nobody loads the page anew: what changes, changes by the stream."""
    page = watched.page
    watched.open("/app/compiles/new")
    page.locator(".cm-content").fill(json.dumps(small_spec("newcomer"), indent=1))
    expect(page.locator("main")).to_contain_text("$0.0", timeout=BUSY_MS)  # the estimate, while one types
    press(page, "Compile")
    page.wait_for_url(re.compile(r"/app/compiles/cmp_[0-9a-z]{26}"))
    page.evaluate("window.__loaded_once = true")
    page.evaluate(
        "window.__said = []; new MutationObserver(() => __said.push(document.querySelector('#live').textContent))"
        ".observe(document.querySelector('#live'), {childList: true})"
    )
    section = page.locator("[data-stream]").first
    expect(section).to_have_attribute("data-state", "live", timeout=BUSY_MS)
    expect(page.locator("#head")).to_contain_text(re.compile("running|succeeded"), timeout=BUSY_MS)
    expect(section).to_have_attribute("data-state", "ended", timeout=2 * BUSY_MS)
    expect(page.locator("#head")).to_contain_text("succeeded", timeout=BUSY_MS)
    expect(page.locator("#head")).to_contain_text("the gate is passed", timeout=BUSY_MS)
    assert page.evaluate("window.__loaded_once") is True
    assert page.evaluate("window.__said.length") >= 1
    return page.url.rstrip("/").rpartition("/")[2].partition("?")[0].partition("#")[0]


def download_and_verify(watched: Watched, house: House, folder: Path) -> None:
    page = watched.page
    page.reload()
    with page.expect_download() as download:
        page.get_by_role("link", name=re.compile("Download")).first.click()
    kept = folder / "newcomer.kolm"
    download.value.save_as(kept)
    keyring = house.deployment.plan.home.keyring
    command = [sys.executable, "-m", "gpu_runners.cli", "verify", str(kept), "--keyring", str(keyring)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    page.locator("#tab-receipts").click()
    press(page, "Verify now")
    expect(page.locator("main")).to_contain_text("intact", timeout=20_000)


def read_the_bill(watched: Watched, spent_microusd: int) -> None:
    page = watched.page
    watched.open("/app/bills")
    assert spent_microusd > 0
    expect(page.locator("main")).to_contain_text(money(spent_microusd))
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    lines = Path(download.value.path()).read_text().splitlines()
    column = lines[0].split(",").index("amount_microusd")
    charged = lines[0].split(",").index("billing")
    rows = [line.split(",") for line in lines[1:]]
    assert sum(int(row[column]) for row in rows if row[charged] == "charge") == spent_microusd


@pytest.mark.nightly
def test_a_second_factor_and_a_passkey(browser: Browser, house: House) -> None:
    """One person of the house; the passkey lives in an authenticator that Chromium plays itself (WebAuthn over CDP)."""
    person = members(house.deployment, house.customer, prefix="mfa")[Role.VIEWER]
    with chromium.context(browser, house.origin) as context, chromium.watched(context) as watched:
        page = watched.page
        log_in(watched, person)
        secret = set_up_totp(watched)
        log_out(page)
        watched.open("/accounts/login/")
        page.fill("input[name=login]", person)
        page.fill("input[name=password]", "correct horse battery")
        press(page, "Log in")
        page.wait_for_url("**/accounts/2fa/authenticate/**")
        page.fill("input[name=code]", "000000")
        page.locator("main form button").first.click()
        expect(page.locator("main")).to_contain_text(re.compile("incorrect|wrong|not", re.IGNORECASE))
        page.fill("input[name=code]", totp(secret))
        page.locator("main form button").first.click()
        page.wait_for_url("**/app/")
        session = context.new_cdp_session(page)
        session.send("WebAuthn.enable")
        options = {"protocol": "ctap2", "transport": "internal", "hasResidentKey": True, "hasUserVerification": True}
        options |= {"isUserVerified": True, "automaticPresenceSimulation": True}  # type: ignore[dict-item]
        session.send("WebAuthn.addVirtualAuthenticator", {"options": options})
        add_passkey(watched, secret)
        log_out(page)
        watched.open("/accounts/login/")
        page.get_by_role("button", name=re.compile("passkey", re.IGNORECASE)).click()
        page.wait_for_url("**/app/")
        expect(page.locator("h1")).to_have_text("Acme Refunds")


_used: dict[str, int] = {}  # by secret: the last period whose code was given; a code is good once


def totp(secret: str) -> str:
    """RFC 6238 with SHA-1, 6 digits, 30 s: the code of now, waited for where it was given already."""
    while (period := int(time.time()) // 30) <= _used.get(secret, 0):
        time.sleep(0.5)
    _used[secret] = period
    key = base64.b32decode(secret + "=" * (-len(secret) % 8))
    digest = hmac.new(key, struct.pack(">Q", period), hashlib.sha1).digest()
    start = digest[-1] & 15
    return f"{(struct.unpack('>I', digest[start : start + 4])[0] & 0x7FFFFFFF) % 1_000_000:06d}"


def confirm_password(page: Page) -> None:
    if "/reauthenticate" in page.url:
        page.fill("input[name=password]", "correct horse battery")
        page.locator("main form button").first.click()
        page.wait_for_url(lambda url: "/reauthenticate" not in url)


def set_up_totp(watched: Watched) -> str:
    page = watched.page
    watched.open("/accounts/2fa/totp/activate/")
    confirm_password(page)
    found = re.search(r"secret(?:=|%3D)([A-Z2-7]{16,})", unquote(page.content()))
    secret = found.group(1) if found else page.locator("#authenticator_secret").input_value()
    assert re.fullmatch(r"[A-Z2-7]{16,}", secret), secret
    page.fill("input[name=code]", totp(secret))
    page.locator("main form button").first.click()
    page.wait_for_url(lambda url: "activate" not in url)
    return secret


def log_out(page: Page) -> None:
    page.goto("/app/")
    page.locator(".side details.menu > summary").click()
    page.locator(".side").get_by_role("button", name="Log out").click()
    page.wait_for_url("**/accounts/login/**")


def add_passkey(watched: Watched, secret: str) -> None:
    page = watched.page
    watched.open("/accounts/2fa/webauthn/add/")
    if "/reauthenticate" in page.url:
        if page.locator("input[name=code]").count():
            page.fill("input[name=code]", totp(secret))
            page.locator("main form button").first.click()
        else:
            confirm_password(page)
        page.wait_for_url("**/webauthn/add/**")
    page.fill("input[name=name]", "Chromium's own")
    box = page.locator("input[name=passwordless]")
    if box.count():
        box.check()
    page.locator("main form button").first.click()
    page.wait_for_url(lambda url: "/webauthn/add" not in url)


def test_a_webhook_is_made_tested_and_verified_by_its_receiver(signed_in: Opened, house: House) -> None:
    watched = signed_in(Role.DEVELOPER)
    page = watched.page
    watched.open("/app/webhooks")
    page.fill("input[name=url]", f"{house.receiver.origin}/from-the-console")
    page.locator("input[name=events][value='*']").check()
    press(page, "Create the endpoint")
    secret = page.locator("[data-copy^=whsec_]").first.get_attribute("data-copy") or ""
    assert secret.startswith("whsec_")
    before = len(house.receiver.bodies)
    press(page, "Send a test")
    expect(page.locator("main")).to_contain_text("204", timeout=15_000)
    headers, body = next((h, b) for h, b in house.receiver.bodies[before:] if b"webhook.test" in b)
    told: Any = Webhook(secret).verify(body, headers)
    assert told["type"] == "webhook.test"
    watched.open("/app/webhooks")
    assert secret not in page.content()


def test_a_viewer_sees_no_door_that_is_closed_to_them(signed_in: Opened) -> None:
    watched = signed_in(Role.VIEWER)
    watched.open("/app/")
    names = watched.page.locator(".side .nav a").all_inner_texts()
    shown = [name.split("\n")[0] for name in names]
    assert shown == ["Overview", "Compiles", "Data", "Artifacts", "Draft cache", "Recipe registry", "Deployments"]
    assert watched.page.get_by_role("link", name="New compile").count() == 0
    watched.expected.append("403")
    answer = watched.open("/app/team")
    assert answer.status == 403
    expect(watched.page.locator("main")).to_contain_text("Your role in Acme Refunds is viewer")


@pytest.mark.nightly
def test_a_stream_that_is_cut_goes_on_by_polling_and_comes_back(signed_in: Opened, house: House) -> None:
    """No event is told twice, none is left out: every sequence number of the compile once."""
    compile_id = house.customer.compile(small_spec("cut"))
    watched = signed_in(Role.OWNER)
    page = watched.page
    watched.expected += ["ERR_FAILED", "net::"]
    cuts: list[str] = []

    def cut(route: Any) -> None:
        is_stream = "text/event-stream" in route.request.headers.get("accept", "")
        if is_stream and len(cuts) < 4:
            cuts.append(route.request.url)
            route.abort()
        else:
            route.continue_()

    page.add_init_script(
        "window.__seqs = []; document.addEventListener('kolm:event', (e) => window.__seqs.push(e.detail.seq), true)"
    )
    page.route(re.compile(r"/events(\?|$)"), cut)
    watched.open(f"/app/compiles/{compile_id}")
    section = page.locator("[data-stream]").first
    after = int(section.get_attribute("data-after") or 0)
    expect(section).to_have_attribute("data-state", "polling", timeout=30_000)
    expect(section).to_have_attribute("data-state", "ended", timeout=200_000)
    last = house.customer.succeeded(compile_id, within_s=30)["sequence"]
    assert page.evaluate("window.__seqs") == list(range(after + 1, last + 1))
    assert len(cuts) >= 3
