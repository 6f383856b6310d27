"""A page made still and equal to itself at any other time: ids, times, ports and addresses become fixed words of the
same length, charts over days are left blank, nothing moves and no caret blinks.

What is replaced is text that is drawn, never the layout: a page that grew a row is another picture.
"""

from playwright.sync_api import Page

_ID = "01k0abcdefghjkmnpqrstvwxyz"
# in this order: pattern in JavaScript's syntax, what stands there instead
_WORDS = (
    (r"\b([a-z]{2,6})_[0-9a-z]{26}\b", rf"$1_{_ID}"),
    (r"\b[0-9a-f]{64}\b", "0123456789abcdef" * 4),
    (r"\b[0-9a-f]{12,40}\b", "0123456789ab"),
    (r"https?://(localhost|127\.0\.0\.1):\d+", "http://127.0.0.1:8000"),
    (r"[\w.-]+@[\w.-]+\.example\b", "owner@acme.example"),
    (r"\b\d+ (second|minute|hour|day)s? ago\b|\bjust now\b", "1 minute ago"),
    (r"\b(in )?\d+ (second|minute|hour|day)s? left\b", "9 days left"),
    (r"\b\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?( ?UTC|Z)?)?", "2026-01-15"),
    (r"\b\d{1,2} (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)[a-z]*( \d{4})?\b", "15 Jan 2026"),
    (
        r"\b(January|February|March|April|May|June|July|August|September|October|November|December) \d{4}\b",
        "January 2026",
    ),
    (r"\b\d{4}-\d\d\b", "2026-01"),
    (r"Forecast: too early to say:.*", "Forecast: too early to say: 0 of 5 whole days are over"),
    (r"\b\d\d:\d\d(:\d\d)?( UTC)?\b", "12:00"),
)
_FREEZE = """([words, blank]) => {
  const patterns = words.map(([from, to]) => [new RegExp(from, "g"), to]);
  const fixed = (text) => patterns.reduce((all, [from, to]) => all.replace(from, to), text);
  for (const time of document.querySelectorAll("time")) time.textContent = "15 Jan 2026, 12:00";
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, text = fixed(node.data);
    if (text !== node.data) node.data = text;
  }
  for (const field of document.querySelectorAll("input:not([type=file]), textarea")) {
    const text = fixed(field.value);
    if (text !== field.value) field.value = text;
  }
  for (const part of document.querySelectorAll(blank)) part.style.visibility = "hidden";
  document.activeElement?.blur();
}"""
# what depends on the day of the month
_BLANK = "[aria-labelledby=days] svg"
_STILL = "*, *::before, *::after { transition: none !important; animation: none !important; caret-color: transparent }"
_FONTS = """() => Object.fromEntries(["sans", "serif", "mono"].map((name) => {
  const line = document.createElement("span");
  line.style.cssText = `position: absolute; white-space: nowrap; font: 100px var(--${name})`;
  line.textContent = "The quick brown fox jumps over 0123456789 lazy dogs: $4.20, 98.7%";
  document.body.append(line);
  const width = line.getBoundingClientRect().width;
  line.remove();
  return [name, Math.round(width)];
}))"""


def freeze(page: Page) -> None:
    """Wait until the page is complete, then make it still."""
    page.wait_for_load_state("load")
    if "data-stream" not in page.content():
        page.wait_for_load_state("networkidle")
    page.evaluate("document.fonts.ready")
    still(page, _STILL)
    page.evaluate(_FREEZE, [[list(pair) for pair in _WORDS], _BLANK])


def still(page: Page, css: str) -> None:
    """Lay a style over the page, by a constructed sheet: no policy of the page's refuses one."""
    page.evaluate(
        "(css) => { const sheet = new CSSStyleSheet(); sheet.replaceSync(css);"
        " document.adoptedStyleSheets.push(sheet); }",
        css,
    )


def fonts_of(page: Page) -> dict[str, int]:
    """How wide a line is in each of the console's three fonts: machines with other fonts lay pages out otherwise."""
    widths: dict[str, int] = page.evaluate(_FONTS)
    return widths
