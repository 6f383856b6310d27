"""Our own pages from Markdown to HTML: headings with anchors, paragraphs, lists, tables, fenced code; inline code, bold
and links. Not Markdown in general: what this does not know it shows as it stands, escaped.

GitHub gives headings the same anchors, so that a link works in the repository and on a deployment alike.
"""

import html
import re
from collections.abc import Iterator
from itertools import groupby

_INLINE = re.compile(r"`(?P<code>[^`]+)`|\*\*(?P<bold>[^*]+)\*\*|\[(?P<text>[^\]]+)\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"(#{1,3}) (.+)")
_RULE = re.compile(r"\|[ :|-]+\|")


def to_html(markdown: str) -> str:
    """The body of a page."""
    return "\n".join(_block(block) for block in _blocks(markdown))


def anchor_of(heading: str) -> str:
    """As GitHub has it: lower case, no punctuation but `-` and `_`, spaces as `-`.

    >>> anchor_of("Problems of a spec"), anchor_of("`k_exceeds_n`")
    ('problems-of-a-spec', 'k_exceeds_n')
    """
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def _blocks(markdown: str) -> Iterator[list[str]]:
    """Lines that belong together: parted by blank lines, but for those within a fence."""
    is_fenced, number, numbered = False, 0, []
    for line in markdown.splitlines():
        number += not line.strip() and not is_fenced
        is_fenced ^= line.startswith("```")
        numbered.append((number, line))
    for _, group in groupby(numbered, key=lambda pair: pair[0]):
        lines = [line for _, line in group]
        if block := lines[1:] if not lines[0].strip() else lines:
            yield block


def _block(lines: list[str]) -> str:
    if heading := _HEADING.fullmatch(lines[0]):
        level, text = len(heading[1]), heading[2]
        rest = f"\n{_block(lines[1:])}" if lines[1:] else ""
        return f'<h{level} id="{anchor_of(text)}">{_inline(text)}</h{level}>{rest}'
    if lines[0].startswith("```"):
        return f"<pre>{html.escape(chr(10).join(lines[1:-1]))}</pre>"
    if lines[0].startswith("- "):
        return "<ul>\n" + "\n".join(f"<li>{_inline(item)}</li>" for item in _items(lines)) + "\n</ul>"
    if lines[0].startswith("|") and len(lines) > 1 and _RULE.fullmatch(lines[1]):
        head, *rows = (_row(line, "th" if i == 0 else "td") for i, line in enumerate([lines[0], *lines[2:]]))
        return "\n".join(["<table>", head, *rows, "</table>"])
    return f"<p>{_inline(' '.join(lines))}</p>"


def _items(lines: list[str]) -> list[str]:
    """An item goes on in the indented lines under it."""
    return [item.replace("\n ", "") for item in re.split(r"\n- ", "\n".join(lines)[2:])]


def _row(line: str, tag: str) -> str:
    cells = line.strip().strip("|").split("|")
    return "<tr>" + "".join(f"<{tag}>{_inline(cell.strip())}</{tag}>" for cell in cells) + "</tr>"


def _inline(text: str) -> str:
    out, at = [], 0
    for match in _INLINE.finditer(text):
        out.append(html.escape(text[at : match.start()]) + _span(match))
        at = match.end()
    return "".join([*out, html.escape(text[at:])])


def _span(match: re.Match[str]) -> str:
    if match["code"]:
        return f"<code>{html.escape(match['code'])}</code>"
    if match["bold"]:
        return f"<strong>{html.escape(match['bold'])}</strong>"
    target = re.sub(r"^(\w+)\.md(?=#|$)", r"\1", match["target"])  # a page of docs/ is served without its suffix
    if not re.match(r"https?://|[\w#/.-]+$", target):
        return html.escape(match[0])
    return f'<a href="{html.escape(target)}">{_inline(match["text"])}</a>'
