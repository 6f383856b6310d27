"""The spec editor in Chromium: CodeMirror over the form's textarea, with completion and hover out of the published
schema and the server's problems in the margin; by keyboard alone, without scripts, in two tabs. A web process alone."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from backend.console.compiles.editor import EXAMPLES, examples
from backend.console.compiles.spec_text import read_spec
from backend.domain.roles import Role
from tests.acceptance.deployment import eventually
from tests.acceptance.specs import small_spec
from tests.browser import chromium
from tests.browser.chromium import THEMES, Theme, serious_faults
from tests.browser.conftest import log_in
from tests.browser.house import members
from tests.web_stack import WebStack, running_web

NEW = "/app/compiles/new"
Opens = Callable[..., BrowserContext]


@pytest.fixture(scope="module")
def web() -> Iterator[WebStack]:
    with running_web(forgetful=True, KOLM_DEFAULT_PLAN="team") as stack:
        yield stack


@pytest.fixture(scope="module")
def state(web: WebStack, browser: Browser) -> Iterator[Any]:
    origin = web.deployment.url
    with web.deployment.customer("Acme") as customer:
        email = members(web.deployment, customer)[Role.OWNER]
        with chromium.context(browser, origin) as context, chromium.watched(context) as watched:
            log_in(watched, email)
            yield context.storage_state()


@pytest.fixture
def window(web: WebStack, browser: Browser, state: Any) -> Iterator[Opens]:
    """A browser of somebody who is logged in, with a storage of its own."""
    made: list[BrowserContext] = []

    def opened(theme: Theme = "light", **more: Any) -> BrowserContext:
        made.append(chromium.context(browser, web.deployment.url, theme=theme, storage_state=state, **more))
        return made[-1]

    yield opened
    for context in made:
        context.close()


@contextmanager
def editor(context: BrowserContext, path: str = NEW, *, expected: str = "") -> Iterator[tuple[Page, Locator]]:
    with chromium.watched(context) as watched:
        watched.expected += [expected] if expected else []
        assert watched.open(path).status == 200
        yield watched.page, content(watched.page)


def content(page: Page) -> Locator:
    return page.locator(".cm-content")


def written(page: Page) -> str:
    return page.locator("textarea#spec").input_value()


def options(page: Page) -> Locator:
    return page.locator(".cm-tooltip-autocomplete li[role=option] .cm-completionLabel")


def test_what_is_typed_is_the_forms_field_and_is_checked(window: Opens) -> None:
    with editor(window()) as (page, text):
        expect(page.locator("textarea#spec")).to_be_hidden()
        text.click()
        page.keyboard.type("name: c?/njk\nnmae: x\n")
        assert written(page) == "name: c?/njk\nnmae: x\n"
        assert page.locator(".cm-lineNumbers .cm-gutterElement").last.inner_text() == "3"
        expect(page.locator("#checked")).to_contain_text("did you mean")
        expect(page.locator(".cm-gutter-lint .cm-lint-marker-error")).not_to_have_count(0)
        page.keyboard.press("Control+z")
        assert written(page) != "name: c?/njk\nnmae: x\n"
        assert page.url.endswith(NEW)


def test_a_problem_in_the_margin_says_what_its_line_in_the_list_says(window: Opens) -> None:
    with editor(window()) as (page, text):
        text.fill("name: router\n# a remark\ntaks: Decide.\n")
        button = page.locator("#checked [data-line='3']")
        button.click()
        expect(text).to_be_focused()
        assert page.evaluate("getSelection().toString()") == "taks: Decide."
        page.locator(".cm-lint-marker-error").last.hover()
        expect(page.locator(".cm-tooltip-lint")).to_contain_text("did you mean")
        text.fill("name: [\n")  # no YAML: the line is in the parser's words
        expect(page.locator("#checked")).to_contain_text("not YAML or JSON")
        expect(page.locator("#checked [data-line]")).to_have_count(1)
        expect(page.locator(".cm-lint-marker-error")).to_have_count(1)
        text.fill("")
        expect(page.locator("#checked")).to_contain_text("appear here as you type")
        expect(page.locator(".cm-lint-marker-error")).to_have_count(0)


def test_keys_and_values_are_completed_out_of_the_schema(window: Opens) -> None:
    with editor(window()) as (page, text):
        text.click()
        page.keyboard.type("outp")
        expect(options(page)).to_have_text(["output"])
        expect(page.locator(".cm-completionInfo")).to_contain_text("What an answer is.")
        page.wait_for_timeout(150)  # CodeMirror takes no key for a choice that has only just been shown
        page.keyboard.press("Enter")
        expect(options(page).first).to_be_visible()  # what may stand in it
        page.keyboard.type("type")
        expect(options(page)).to_have_text(["type"])
        page.wait_for_timeout(150)
        page.keyboard.press("Tab")
        expect(options(page)).to_have_text(["label", "json", "text"])
        page.wait_for_timeout(150)
        page.keyboard.press("Enter")
        assert written(page) == "output:\n  type: label"
        page.keyboard.press("Enter")
        page.keyboard.press("Control+Space")
        expect(options(page)).to_have_text(["labels", "abstain"])  # those of a label task
        page.keyboard.press("Escape")
        expect(options(page)).to_have_count(0)
        expect(text).to_be_focused()


def test_a_json_spec_is_completed_as_json(window: Opens) -> None:
    with editor(window()) as (page, text):
        text.click()
        page.keyboard.type('{"sampling": {"meth')
        expect(options(page)).to_have_text(["method"])
        page.wait_for_timeout(150)
        page.keyboard.press("Enter")
        expect(options(page).first).to_have_text("auto")
        page.wait_for_timeout(150)
        page.keyboard.press("Enter")
        assert json.loads(written(page)) == {"sampling": {"method": "auto"}}


def test_a_value_that_is_there_in_full_is_not_offered_and_what_is_below_a_key_is_indented(window: Opens) -> None:
    with editor(window()) as (page, text):
        text.click()
        page.keyboard.type("output: # what it is\n")
        page.keyboard.type("type: labe")
        expect(options(page)).to_have_text(["label"])
        page.keyboard.type("l")
        expect(options(page)).to_have_count(0)
        page.keyboard.type("\nlabels:\n- name: yes-please\ndescription: Of course.\n")
        lines = [
            "output: # what it is",
            "  type: label",
            "  labels:",
            "    - name: yes-please",
            "      description: Of course.",
        ]
        assert written(page).splitlines() == [*lines, "      "]


@pytest.mark.parametrize("name", sorted(examples()))
def test_every_key_of_an_example_has_the_path_that_the_servers_parser_reads(name: str, window: Opens) -> None:
    yaml_text = (EXAMPLES / examples()[name]).read_text()
    json_text = json.dumps(read_spec(yaml_text).value, indent=1, ensure_ascii=False)
    with editor(window()) as (page, _):
        for text in (yaml_text, json_text):
            keys = some_keys(text)
            assert len(keys) > 40
            asked = [[line, key] for line, key, _ in keys]
            paths = page.evaluate(_PATHS_OF_KEYS, {"text": text, "asked": asked})
            wrong = [(key, answer) for key, answer in zip(keys, paths, strict=True) if key[2] not in answer]
            assert not wrong, wrong[:5]


# for each line and key, the paths of all places of the line where that key stands
_PATHS_OF_KEYS = r"""({text, asked}) => {
    const language = text.startsWith("{") ? codemirror.json() : codemirror.yaml();
    const state = codemirror.EditorState.create({doc: text, extensions: [language]});
    return asked.map(([number, key]) => {
        const line = state.doc.line(number);
        const found = [...line.text.matchAll(new RegExp(String.raw`(^|[\s{,"'])${key}["']?\s*:(\s|$)`, "g"))];
        return found.map((match) => {
            const place = kolm.placeOf(state, line.from + match.index + match[1].length + 1);
            return place?.kind === "key" ? [...place.steps.map((step) => step.key), place.name].join(".") : "";
        });
    });
}"""


def some_keys(text: str) -> list[tuple[int, str, str]]:
    """Line, key and path, at most 300 of them; items of lists are `[]`."""
    document = read_spec(text)
    pointers: list[list[str]] = []

    def walk(value: Any, pointer: list[str]) -> None:
        parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, part in parts:
            pointers.append([*pointer, str(key)])
            walk(part, pointers[-1])

    walk(document.value, [])
    named = [pointer for pointer in pointers if re.fullmatch("[a-z_]+", pointer[-1])]
    return [
        (
            document.line_of("/" + "/".join(pointer)),
            pointer[-1],
            ".".join("[]" if key.isdecimal() else key for key in pointer),
        )
        for pointer in named[:: len(named) // 300 + 1]
    ]


BREAKS = ("{", "}", "[", "]", ":", "\n", "- ", '"', "'", " #", "|", "\t", ",", ":\n", '{"')


def test_half_written_text_is_no_fault(window: Opens) -> None:
    """Cut anywhere and broken by brackets, quotes and colons, a text has a place or none; nothing throws."""
    random, text = Random(7), (EXAMPLES / "refund-router.yaml").read_text()[:6_000]
    broken = []
    for _ in range(1_000):
        start = random.randrange(5_000)
        piece = text[start : start + random.randrange(400)]
        for _ in range(3):
            at = random.randrange(len(piece) + 1)
            piece = piece[:at] + random.choice(BREAKS) + piece[at:]
        broken.append(random.choice(["", "{"]) + piece)
    with editor(window()) as (page, _):
        outside = page.evaluate(
            """(texts) => texts.filter((text) => {
                const state = codemirror.EditorState.create({doc: text, extensions: [codemirror.yaml()]});
                const places = [0.3, 0.6, 1].map((share) => kolm.placeOf(state, Math.floor(share * text.length)));
                const isInside = ({from, to}) => 0 <= from && from <= to && to <= text.length;
                return places.some((place) => place && !isInside(place));
            })""",
            broken,
        )
        assert outside == []


def test_a_hostile_text_costs_no_time(window: Opens) -> None:
    """A spec of somebody else of the team may be opened: nothing looks at a text more than a few times."""
    n = 200_000
    hostile = [
        "a" + " " * n + "b",
        "- " * n,
        "a: " + " " * n + "x",
        "{" * n,
        '{"a":' * n,
        "{" + ":" * n,
        '{"' + "\\" * n,
    ]
    with editor(window()) as (page, _):
        took_ms = page.evaluate(
            """(texts) => texts.map((text) => {
                const doc = codemirror.EditorState.create({doc: text}).doc, began = performance.now();
                for (const at of [0, 90_000, text.length]) {
                    kolm.placeInSpec(doc, at, -1, false);
                    kolm.placeInSpec(doc, at, 0, true);
                }
                return performance.now() - began;
            })""",
            hostile,
        )
        assert max(took_ms) < 3_000, took_ms


def test_hover_explains_a_key(window: Opens) -> None:
    with editor(window(), f"{NEW}?example=refund-router") as (page, _):
        page.locator(".cm-line", has_text=re.compile("^task: ")).get_by_text("task", exact=True).first.hover()
        note = page.locator(".cm-tooltip-hover .spec-note")
        expect(note).to_contain_text("What the model is to do, in your words.")
        expect(note.locator("strong")).to_have_text("task")


@pytest.mark.parametrize("theme", THEMES)
def test_the_editor_is_accessible_with_all_that_it_opens(theme: Theme, window: Opens) -> None:
    with editor(window(theme)) as (page, text):
        text.fill("name: router\nouptut:\n  type: label\ngate: {k_min: 1.5}\n# a remark\n")
        expect(page.locator(".cm-lint-marker-error")).not_to_have_count(0)
        assert serious_faults(page) == []
        page.keyboard.press("Control+f")
        expect(page.locator(".cm-search input[name=search]")).to_be_focused()
        page.keyboard.type("router")
        page.keyboard.press("Enter")  # goes on in the text and sends no form
        assert serious_faults(page) == []
        page.keyboard.press("Escape")
        page.keyboard.press("Control+End")
        page.keyboard.press("Control+Space")
        expect(options(page).first).to_be_visible()
        assert serious_faults(page) == []
        page.keyboard.press("Escape")
        expect(page.get_by_role("textbox", name="Spec, YAML or JSON")).to_be_focused()


def test_a_spec_is_written_checked_and_sent_by_keyboard_alone(window: Opens) -> None:
    with editor(window()) as (page, text):
        page.get_by_text("Spec, YAML or JSON").click()  # the label leads into the editor
        expect(text).to_be_focused()
        page.keyboard.insert_text(json.dumps(small_spec("by-keyboard"), indent=1))
        page.keyboard.press("Tab")  # stays, and indents
        expect(text).to_be_focused()
        page.keyboard.press("Control+z")
        expect(page.locator("#checked")).to_contain_text("The spec is valid")
        page.keyboard.press("Escape")
        page.keyboard.press("Tab")
        expect(page.get_by_label("Wrap lines")).to_be_focused()
        page.keyboard.press("Space")
        expect(page.locator(".cm-lineWrapping")).to_have_count(0)
        page.keyboard.press("Tab")
        expect(page.locator("#budget")).to_be_focused()
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile(r"/app/compiles/cmp_[0-9a-z]{26}"))
        page.goto(NEW)  # what is compiled is no draft any more
        expect(page.locator(".cm-lineNumbers")).to_be_visible()
        assert written(page) == ""


def test_a_draft_survives_a_reload_and_can_be_discarded(window: Opens) -> None:
    context = window()
    with editor(context, f"{NEW}?example=refund-router") as (page, text):
        text.click()
        page.keyboard.press("Control+Home")
        page.keyboard.type("# mine\n")
        page.reload()  # at once: what waits is kept when the page goes
        expect(page.locator(".spec-draft")).to_contain_text("as this browser kept it")
        assert "# mine\n" in written(page)
        expect(text).to_contain_text("# mine")
        expect(page.locator("#checked")).to_contain_text("The spec is valid")  # what is shown is checked
        page.get_by_role("button", name="Discard the draft").click()
        assert "# mine" not in written(page)
        page.wait_for_timeout(500)
        page.reload()
        assert "# mine" not in written(page)
        expect(page.locator(".spec-draft")).to_have_count(0)
        page.goto(NEW)  # every beginning has a draft of its own
        assert written(page) == ""


def test_a_refused_spec_is_the_newest_text(window: Opens) -> None:
    with editor(window(), expected="status of 422") as (page, text):
        text.fill("name: half-written")
        page.get_by_role("button", name="Compile", exact=True).click()
        page.wait_for_load_state("load")
        expect(page.locator("#checked .faults li")).not_to_have_count(0)
        assert written(page) == "name: half-written"
        expect(page.locator(".spec-draft")).to_have_count(0)
        expect(page.locator(".cm-lint-marker-error")).not_to_have_count(0)
        page.goto(NEW)
        assert written(page) == "name: half-written"


def test_logging_out_forgets_drafts(window: Opens) -> None:
    with editor(window()) as (page, text):
        text.fill("name: secret")
        drafts = "Object.keys(localStorage).filter((key) => key.startsWith('kolm-draft:'))"
        eventually(lambda: page.evaluate(drafts), within_s=5, what="a draft is kept")
        page.evaluate(
            "document.querySelector('form[action$=\"/logout/\"]').dispatchEvent(new Event('submit', {bubbles: true}))"
        )
        assert page.evaluate(drafts) == []


@contextmanager
def two_tabs(context: BrowserContext) -> Iterator[tuple[Page, Page]]:
    with editor(context) as (first, _), editor(context) as (second, _):
        yield first, second


def test_two_tabs_never_overwrite_each_other(window: Opens) -> None:
    with two_tabs(window()) as (first, second):
        content(first).fill("name: first")
        warning = second.get_by_role("alert").filter(has_text="changed in another tab")
        expect(warning).to_be_visible()
        assert written(second) == ""
        assert serious_faults(second) == []
        second.get_by_role("button", name="Take theirs").click()
        assert written(second) == "name: first"
        expect(content(second)).to_have_text("name: first")
        expect(warning).to_have_count(0)

        content(second).fill("name: second")
        ask = first.get_by_role("alert").filter(has_text="changed in another tab")
        expect(ask).to_be_visible()
        content(first).fill("name: first-again")
        first.wait_for_timeout(500)
        expect(warning).to_have_count(0)  # while it asks, a tab writes nothing
        first.get_by_role("button", name="Keep mine").click()
        content(first).fill("name: first-on-its-own")
        content(second).fill("name: second-on-its-own")
        first.wait_for_timeout(500)
        expect(ask).to_have_count(0)  # from then on each has a draft of its own
        expect(warning).to_have_count(0)
        for page, text in ((first, "name: first-on-its-own"), (second, "name: second-on-its-own")):
            page.reload()
            expect(content(page)).to_have_text(text)
            assert written(page) == text


def test_a_compile_ends_its_own_draft_and_no_other_tabs(window: Opens) -> None:
    with two_tabs(window()) as (first, second):
        content(first).fill("name: half-written")
        expect(second.get_by_role("alert").filter(has_text="changed in another tab")).to_be_visible()
        content(second).fill(json.dumps(small_spec("second"), indent=1))
        second.get_by_role("button", name="Compile", exact=True).click()
        second.wait_for_url(re.compile(r"/app/compiles/cmp_[0-9a-z]{26}"))
        first.reload()
        assert written(first) == "name: half-written"


def test_a_tab_that_slept_through_a_change_asks_before_it_writes(window: Opens) -> None:
    with two_tabs(window()) as (first, second):
        second.evaluate("addEventListener('storage', (event) => event.stopImmediatePropagation(), true)")
        second.reload()
        content(first).fill("name: first")
        first.wait_for_timeout(500)
        second.evaluate("window.__kept = localStorage.length")
        content(second).fill("name: second")
        expect(second.get_by_role("alert").filter(has_text="changed in another tab")).to_be_visible()
        kept = second.evaluate("Object.entries(localStorage).find(([key]) => key.startsWith('kolm-draft:'))[1]")
        assert json.loads(kept)["text"] == "name: first"


def test_without_scripts_the_textarea_is_the_editor(window: Opens) -> None:
    context = window(java_script_enabled=False)
    page = context.new_page()
    page.goto(NEW)
    page.fill("textarea#spec", "name: half-written\nnmae: x")
    page.get_by_role("button", name="Check", exact=True).click()
    page.wait_for_load_state("load")
    expect(page.locator("#checked")).to_contain_text("did you mean")
    assert page.locator("textarea#spec").input_value() == "name: half-written\nnmae: x"


def test_a_textarea_that_comes_later_becomes_an_editor_and_follows_its_field(window: Opens) -> None:
    with editor(window()) as (page, _):
        page.evaluate(
            """() => {
                const label = document.createElement("label"), area = document.createElement("textarea");
                label.textContent = "Preview"; label.htmlFor = area.id = "preview";
                area.value = "name: one"; area.readOnly = true; area.dataset.specEditor = "";
                document.querySelector("main").append(label, area);
                htmx.process(area); area.dispatchEvent(new CustomEvent("htmx:load", {bubbles: true}));
            }"""
        )
        later = page.get_by_role("textbox", name="Preview")
        expect(later).to_have_text("name: one")
        page.evaluate(
            "const area = document.getElementById('preview'); area.value = 'name: two';"
            "area.dispatchEvent(new Event('input', {bubbles: true}))"
        )
        expect(later).to_have_text("name: two")
        later.focus()
        page.keyboard.type("x")
        assert page.locator("#preview").input_value() == "name: two"


def test_no_other_page_loads_the_editor(window: Opens) -> None:
    with chromium.watched(window()) as watched:
        asked: list[str] = []
        watched.page.on("request", lambda request: asked.append(request.url))
        for path in ("/app/", "/app/compiles", "/app/bills"):
            watched.open(path)
        assert asked
        assert not [url for url in asked if re.search("codemirror|spec_editor", url)]


def test_a_large_example_is_typed_into_without_waiting(window: Opens) -> None:
    with editor(window(), f"{NEW}?example=order-extractor") as (page, text):
        text.click()
        page.keyboard.press("Control+Home")
        began = page.evaluate("performance.now()")
        page.keyboard.type("# twenty characters\n")
        assert page.evaluate("performance.now()") - began < 3_000
        assert written(page).startswith("# twenty characters\n")
