"""GET /docs/errors and /docs/events: the pages that `doc_url` and the event stream point at, from docs/ of the source
tree this deployment runs.

Public and without a transaction: whoever reads an error may have no key, and the database may be what is broken. An
installation without docs/ (a wheel holds none) answers 404 and says where the page is.
"""

from functools import lru_cache
from pathlib import Path

from django.conf import settings
from django.db import transaction
from django.http import HttpRequest, HttpResponse

from backend.rest.plain_markdown import to_html
from backend.rest.problems import problem_response

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem;color:#1b1b1f}"
    "h3{font-family:ui-monospace,monospace;margin:1.6rem 0 .2rem}h3:target{background:#fff3c4}ul{margin:.2rem 0}"
    "pre,code{font-family:ui-monospace,monospace;background:#f4f4f6}pre{padding:.6rem;overflow-x:auto}"
    "table{border-collapse:collapse}th,td{border:1px solid #ddd;padding:.2rem .5rem;text-align:left;vertical-align:top}"
)


@transaction.non_atomic_requests
def docs_page(request: HttpRequest, name: str) -> HttpResponse:
    """The page `docs/<name>.md`; the routes say which names there are."""
    if request.method not in ("GET", "HEAD"):
        allow = {"Allow": "GET, HEAD"}
        return problem_response(
            request, status=405, code="method_not_allowed", detail="A page can only be read; use GET.", headers=allow
        )
    path = settings.ROOT / "docs" / f"{name}.md"
    try:
        changed_ns = path.stat().st_mtime_ns
    except FileNotFoundError:
        message = f"This deployment was installed without its pages; this one is docs/{name}.md in kolm's source tree."
        return problem_response(request, status=404, code="docs_not_installed", detail=message)
    response = HttpResponse(_rendered(path, changed_ns), content_type="text/html; charset=utf-8")
    response["Cache-Control"] = "public, max-age=3600"
    response["Content-Security-Policy"] = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
    return response


@lru_cache(maxsize=8)
def _rendered(path: Path, changed_ns: int) -> bytes:
    """Rendered once for each state of the file."""
    markdown = path.read_text(encoding="utf-8")
    title = markdown.partition("\n")[0].removeprefix("# ")
    head = f'<meta charset="utf-8"><title>kolm: {title}</title><style>{_STYLE}</style>'
    page = f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{to_html(markdown)}\n</body></html>\n'
    return page.encode()
