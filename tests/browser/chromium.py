"""The browser: Debian's Chromium, driven by Playwright, and a page that fails its test by what it says.

Nothing is downloaded. Every page listens: an error on the console, an exception in a script, a violation of the
Content-Security-Policy or a failed request of ours is a complaint, and a complaint fails the test that opened it.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Playwright, Response

from deploy.embedded.home import ROOT

CHROMIUM = Path("/usr/bin/chromium")
AXE = ROOT / "backend" / "console" / "node_modules" / "axe-core" / "axe.min.js"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
WIDTHS = (1440, 1024, 360)
MOST_BYTES = 120_000  # a cold load
MOST_BYTES_WITH_EDITOR = 240_000  # CodeMirror alone is 138 KB
Theme = Literal["light", "dark"]
THEMES: tuple[Theme, ...] = ("light", "dark")

# before any script of the page: what the policy refused, kept where the test can read it
_WATCH = """
window.__refused = [];
document.addEventListener("securitypolicyviolation", (e) => {
  window.__refused.push(`${e.effectiveDirective}: ${e.blockedURI} ${e.sample}`);
});
"""


def missing() -> str:
    """Why no browser test can run here; empty where they can."""
    if not CHROMIUM.exists():
        return f"there is no Chromium at {CHROMIUM} (Debian: apt install chromium)"
    if not AXE.exists():
        return f"axe-core is not at {AXE} (make setup)"
    return ""


def launch(playwright: Playwright) -> Browser:
    return playwright.chromium.launch(executable_path=str(CHROMIUM), args=list(FLAGS))


@dataclass(kw_only=True)
class Watched:
    """A page and what it complained of. `expected` are parts of messages that the test provokes on purpose."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)
    received: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.complaints.append(f"script: {error}"))
        self.page.on("response", self._answered)

    def open(self, address: str) -> Response:
        answer = self.page.goto(address, wait_until="load")
        assert answer is not None
        return answer

    def check(self) -> None:
        """Fails with all complaints so far."""
        refused = self.page.evaluate("window.__refused || []")
        found = [*self.complaints, *(f"policy: {one}" for one in refused)]
        found = [one for one in found if not any(part in one for part in self.expected)]
        assert not found, "\n".join(found)

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"console {message.type}: {message.text} ({message.location.get('url', '')})")

    def _answered(self, response: Response) -> None:
        if response.status >= 500:
            self.complaints.append(f"{response.status} from {response.url}")


def context(browser: Browser, origin: str, *, theme: Theme = "light", width: int = 1440, **more: Any) -> BrowserContext:
    made = browser.new_context(
        base_url=origin,
        viewport={"width": width, "height": 900},
        color_scheme=theme,
        reduced_motion="reduce",
        locale="en-GB",
        timezone_id="UTC",
        **more,
    )
    made.add_init_script(_WATCH)
    made.set_default_timeout(30_000)
    return made


@contextmanager
def watched(browser_context: BrowserContext) -> Iterator[Watched]:
    """A page whose complaints fail whatever is done with it."""
    page = browser_context.new_page()
    watch = Watched(page=page)
    try:
        yield watch
        watch.check()
    except BaseException:
        picture(page)
        raise
    finally:
        page.close()


def picture(page: Page) -> None:
    """What the browser showed when a test failed: build/browser/<time>.png."""
    folder = ROOT / "build" / "browser"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{time.strftime('%H%M%S')}-{time.monotonic_ns() % 1000:03d}.png"
    page.screenshot(path=file)
    print(f"{page.url}: {file}")


def serious_faults(page: Page) -> list[str]:
    """What axe-core calls serious or critical, by WCAG 2.2 A and AA and best practice. It is injected over the
    debugger, which no policy of the page's binds."""
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations'], preload: false})")
    return [
        f"{fault['impact']} {fault['id']}: {node['html'][:160]} {node['failureSummary'][:240]}"
        for fault in found["violations"]
        if fault["impact"] in ("serious", "critical")
        for node in fault["nodes"][:4]
    ]


def transferred_bytes(page: Page) -> int:
    """Of the page and all that it loaded, headers included, as the browser counted; nothing came from its cache."""
    total: int = page.evaluate(
        "performance.getEntriesByType('navigation').concat(performance.getEntriesByType('resource'))"
        ".reduce((sum, entry) => sum + entry.transferSize, 0)"
    )
    return total


def overflow_px(page: Page) -> int:
    """By how much the page is wider than its window."""
    wider: int = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return wider


def check_shown(watched: Watched, *, at_360: bool) -> None:
    """The page that is open is light, quiet, no wider than its window and accessible, on a phone too where asked."""
    page = watched.page
    if "data-stream" not in page.content():
        page.wait_for_load_state("networkidle")
    most = MOST_BYTES if page.locator("[data-spec-editor]").count() == 0 else MOST_BYTES_WITH_EDITOR
    assert transferred_bytes(page) < most, (page.url, transferred_bytes(page))
    watched.check()
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert overflow_px(page) == 0, (page.url, width)
        if width == 1440 or (width == 360 and at_360):
            faults = serious_faults(page)
            assert faults == [], (page.url, width, faults)
