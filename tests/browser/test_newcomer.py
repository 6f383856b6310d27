"""The guided first compile as somebody with a CSV goes through it: the file is dropped, a column is corrected, the rest
is answered, the estimate follows, the compile starts. By the keyboard too, and with a file that is too large."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from backend.domain.roles import Role
from tests.browser.chromium import THEMES, Theme, Watched, overflow_px, serious_faults
from tests.browser.conftest import Opened

pytestmark = [pytest.mark.timeout(600), pytest.mark.nightly]

TABLE = "text,label,team\n" + "".join(
    f"message number {n} of a customer,{('refund', 'status')[n % 2]},{('north', 'south')[n % 2]}\n" for n in range(120)
)
DROP = """([text, name]) => {
  const zone = document.querySelector("[data-drop-zone]"), data = new DataTransfer();
  data.items.add(new File([text], name, { type: "text/csv" }));
  for (const kind of ["dragenter", "dragover", "drop"])
    zone.dispatchEvent(new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true }));
}"""


def looked_at(page: Page) -> None:
    expect(page.locator("#source")).to_contain_text("A table of 120 rows")


def check_page(watched: Watched) -> None:
    assert serious_faults(watched.page) == []
    for width in (1440, 360):
        watched.page.set_viewport_size({"width": width, "height": 900})
        assert overflow_px(watched.page) == 0, width
    watched.page.set_viewport_size({"width": 1440, "height": 900})


@pytest.mark.parametrize("theme", THEMES)
def test_a_csv_is_dropped_looked_at_and_compiled(signed_in: Opened, theme: Theme) -> None:
    watched = signed_in(Role.OWNER, theme=theme)
    page = watched.page
    watched.open("/app/start")
    page.evaluate(DROP, [TABLE, "tickets.csv"])
    looked_at(page)
    roles = page.locator("select[name=role]")
    assert [roles.nth(n).input_value() for n in range(3)] == ["input", "output", ""]
    expect(page.locator("#source")).to_contain_text("2 labels")
    check_page(watched)
    page.get_by_role("button", name="Use 120 rows").click()
    page.wait_for_url(re.compile(r"/app/start\?upload=upl_"))
    page.fill("#task", "Route a message by what its customer wants.")
    page.fill("#about-0", "Wants money back.")
    page.select_option("#provider", "demo")
    expect(page.locator("#beside")).to_contain_text("The spec is valid")
    page.locator("#yaml summary").click()
    expect(page.locator("textarea[name=spec]")).to_have_value(re.compile("Wants money back"))
    check_page(watched)
    page.locator("#beside").get_by_role("button", name="Compile").click()
    page.wait_for_url(re.compile(r"/app/compiles/cmp_"))


def test_a_column_that_was_taken_for_the_wrong_thing_is_corrected(signed_in: Opened, tmp_path: Path) -> None:
    watched = signed_in(Role.OWNER)
    page = watched.page
    (tmp_path / "tickets.csv").write_text(TABLE)
    watched.open("/app/uploads")
    page.set_input_files("#data-file", tmp_path / "tickets.csv")
    looked_at(page)
    page.locator("select[name=role]").nth(1).select_option("")
    expect(page.locator("#source")).to_contain_text("no column of answers")
    page.locator("select[name=role]").nth(2).select_option("output")
    expect(page.locator("#labels")).to_contain_text("north 60")  # the answer to the second look
    page.fill("#data-name", "by team")
    page.get_by_role("button", name="Use 120 rows").click()
    page.wait_for_url(re.compile(r"/app/uploads/upl_"))
    expect(page.locator("main")).to_contain_text("by team")
    expect(page.locator("main")).to_contain_text("south")


def test_a_file_that_is_too_large_is_said_before_it_is_sent(signed_in: Opened, tmp_path: Path) -> None:
    watched = signed_in(Role.OWNER)
    page = watched.page
    large = tmp_path / "large.csv"
    with large.open("wb") as file:
        file.write(b"text,label\n")
        file.truncate(40_000_000)
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url) if request.method == "POST" else None)
    watched.open("/app/start")
    page.set_input_files("#data-file", large)
    expect(page.locator("[data-drop-fault]")).to_contain_text("kolm init large.csv")
    assert sent == []


def test_the_vendor_brings_its_models_and_a_key_of_another_is_refused(signed_in: Opened, tmp_path: Path) -> None:
    watched = signed_in(Role.OWNER)
    page = watched.page
    (tmp_path / "tickets.csv").write_text(TABLE)
    watched.open("/app/start")
    page.set_input_files("#data-file", tmp_path / "tickets.csv")
    looked_at(page)
    page.get_by_role("button", name="Use 120 rows").click()
    page.wait_for_url(re.compile(r"/app/start\?upload=upl_"))
    page.select_option("#provider", "anthropic")
    expect(page.locator("#model")).to_contain_text("claude-haiku-5-5")
    page.fill("#secret", "sk-proj-0123456789abcdef")
    page.get_by_role("button", name="Store and test").click()
    expect(page.locator("#keys")).to_contain_text("looks like a key of OpenAI")
    expect(page.locator("#secret")).to_have_value("")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.tagName") != "BODY"


def test_a_file_that_does_not_arrive_says_so_beside_it(signed_in: Opened, tmp_path: Path) -> None:
    watched = signed_in(Role.OWNER)
    page = watched.page
    (tmp_path / "tickets.csv").write_text(TABLE)
    watched.open("/app/start")
    watched.expected += ["503"]
    page.route("**/uploads/inspect", lambda route: route.fulfill(status=503, body="away"))
    page.set_input_files("#data-file", tmp_path / "tickets.csv")
    expect(page.locator("[data-drop-fault]")).to_contain_text("did not arrive")
    expect(page.locator("[data-drop-sent]")).to_be_hidden()
