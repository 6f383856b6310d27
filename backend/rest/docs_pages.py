"""GET /docs/errors, /docs/events and the other PAGES that messages point at, from docs/ of the source tree this
installation runs, as HTML: CommonMark with tables, without raw HTML and images.

Headings have the anchors that GitHub gives them, so that a link works in the repository and on a deployment alike. A
link to a page that is not served stays as its words.

Public and without a transaction: whoever reads an error may have no key, and the database may be what is broken. An
installation without docs/ (a wheel holds none) answers 404 and says where the page is.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from django.conf import settings
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from markdown_it import MarkdownIt
from markdown_it.token import Token

from backend.rest.problems import problem_response

PAGES = (
    *("errors", "events", "drafts", "preflight"),
    *("first-compile", "client", "teachers", "prices", "plans", "rewards", "checks", "generative"),
)
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem;color:#1b1b1f}"
    "h3{font-family:ui-monospace,monospace;margin:1.6rem 0 .2rem}h3:target{background:#fff3c4}ul{margin:.2rem 0}"
    "pre,code{font-family:ui-monospace,monospace;background:#f4f4f6}pre{padding:.6rem;overflow-x:auto}"
    "table{border-collapse:collapse}th,td{border:1px solid #ddd;padding:.2rem .5rem;text-align:left;vertical-align:top}"
)

_LINK = re.compile(r"https?://.+|mailto:.+|(?!//)[\w./?=&%#-]*")
_SERVED = re.compile(rf"^({'|'.join(PAGES)})\.md(?=#|$)")
_NOT_SERVED = re.compile(r"(?!/)[\w./-]+\.(md|json)(#.*)?")
_COMMENT = re.compile(r"^<!--.*-->\n?", re.MULTILINE)


class _Markdown(MarkdownIt):
    """CommonMark whose links lead to http(s), mailto or a page beside this one."""

    def __init__(self) -> None:
        super().__init__("commonmark", {"html": False})
        self.enable("table").disable("image")

    def normalizeLink(self, url: str) -> str:
        """Drop the suffix of a page of docs/, which is served without it."""
        return _SERVED.sub(r"\1", super().normalizeLink(url))

    def validateLink(self, url: str) -> bool:
        return _LINK.fullmatch(url) is not None


_MARKDOWN = _Markdown()


def to_html(markdown: str) -> str:
    """Render the body of a page."""
    tokens = _MARKDOWN.parse(_COMMENT.sub("", markdown))
    for opening, text in pairwise(tokens):
        if opening.type == "heading_open":
            opening.attrSet("id", anchor_of(text.content))
    for token in tokens:
        token.children = None if token.children is None else list(_without_dead_links(token.children))
    return str(_MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {}))


def _without_dead_links(inline: Iterable[Token]) -> Iterator[Token]:
    """Leave out the links to files of docs/ that are not served; what they enclose stays."""
    is_dead = False
    for token in inline:
        if token.type == "link_open":
            is_dead = _NOT_SERVED.fullmatch(str(token.attrGet("href"))) is not None
        if not is_dead or token.type not in ("link_open", "link_close"):
            yield token


def anchor_of(heading: str) -> str:
    """Give a heading GitHub's anchor: lower case, no punctuation but `-` and `_`, spaces as `-`.

    >>> anchor_of("Problems of a spec"), anchor_of("`k_exceeds_n`")
    ('problems-of-a-spec', 'k_exceeds_n')
    """
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


@transaction.non_atomic_requests
def docs_page(request: HttpRequest, name: str) -> HttpResponse:
    """The page `docs/<name>.md`, one of PAGES."""
    if request.method not in ("GET", "HEAD"):
        allow = {"Allow": "GET, HEAD"}
        return problem_response(
            request, status=405, code="method_not_allowed", detail="A page can only be read; use GET.", headers=allow
        )
    path = settings.ROOT / "docs" / f"{name}.md"
    try:
        changed_ns = path.stat().st_mtime_ns
    except FileNotFoundError:
        message = f"This installation lacks the pages of docs/; this one is docs/{name}.md in kolm's source tree."
        return problem_response(request, status=404, code="docs_not_installed", detail=message)
    response = HttpResponse(_render(path, changed_ns), content_type="text/html; charset=utf-8")
    response["Cache-Control"] = "public, max-age=3600"
    response["Content-Security-Policy"] = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
    return response


@lru_cache(maxsize=16)
def _render(path: Path, changed_ns: int) -> bytes:
    """Rendered once for each state of the file."""
    markdown = path.read_text(encoding="utf-8")
    title = markdown.partition("\n")[0].removeprefix("# ").replace("`", "")
    head = f'<meta charset="utf-8"><title>kolm: {title}</title><style>{_STYLE}</style>'
    page = f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{to_html(markdown)}\n</body></html>\n'
    return page.encode()
