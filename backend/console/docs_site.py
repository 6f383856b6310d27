"""GET /docs/ and below: the documentation's site, as `make docs` and set-up write it to build/docs-site.

Public and without a transaction or a session: whoever reads an error may have no key, and the database may be what is
broken. Pages are served without the suffix of their file, so that `/docs/errors#code` is the address of an error;
nothing of mkdocs is needed here. Where the site was not built, a page says how.
"""

from functools import lru_cache
from pathlib import Path
from urllib.parse import quote

from django.conf import settings
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from whitenoise import WhiteNoise
from whitenoise.responders import StaticFile

from backend.rest.problems import problem_response

SITE = Path("build") / "docs-site"
STAMP = "made-from.sha256"  # written last by the build
MAX_AGE_S = 300
_HASHED = r"\.[0-9a-f]{8}\.min\.\w+$"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self';"
    " connect-src 'self'; worker-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


@transaction.non_atomic_requests
def docs_page(request: HttpRequest, path: str) -> HttpResponse:
    """The file at `path` of the site, or the page whose name it is."""
    if request.method not in ("GET", "HEAD"):
        allow = {"Allow": "GET, HEAD"}
        return problem_response(
            request, status=405, code="method_not_allowed", detail="A page can only be read; use GET.", headers=allow
        )
    try:
        built_ns = (settings.ROOT / SITE / STAMP).stat().st_mtime_ns
    except FileNotFoundError:
        return _missing(request, is_built=False)
    file = _files(settings.ROOT / SITE, built_ns).get(path)
    return _missing(request, is_built=True) if file is None else _whole(file, request)


@transaction.non_atomic_requests
def docs_root(request: HttpRequest) -> HttpResponse:
    return HttpResponseRedirect("/docs/")


@lru_cache(maxsize=2)
def _files(root: Path, built_ns: int) -> dict[str, StaticFile]:
    """Every file by its path below /docs/, looked through once for each build."""
    served = WhiteNoise(
        None,
        root=str(root),
        prefix="docs",
        index_file=True,
        max_age=MAX_AGE_S,
        allow_all_origins=False,
        immutable_file_test=_HASHED,
    )
    by_path = {address.removeprefix("/docs/"): file for address, file in served.files.items()}
    pages = {path.removesuffix(".html"): file for path, file in by_path.items() if path.endswith(".html")}
    return pages | by_path


def _whole(file: StaticFile, request: HttpRequest) -> HttpResponse:
    answer = file.get_response(request.method, request.META)
    body = b"" if answer.file is None else answer.file.read()
    if answer.file is not None:
        answer.file.close()
    response = HttpResponse(body, status=answer.status)
    for name, value in answer.headers:
        response[name] = value
    response["Content-Security-Policy"] = _POLICY
    return response


def _missing(request: HttpRequest, *, is_built: bool) -> HttpResponse:
    context = {"is_built": is_built, "path": quote(request.path)[:200]}
    response = render(request, "console/docs_missing.html", context, status=404)
    response["Content-Security-Policy"] = _POLICY
    return response
