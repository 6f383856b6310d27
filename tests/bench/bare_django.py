"""The naive baseline of `tests.bench.api_latency`: a bare Django ASGI view that answers given bytes; no key, no
database, no middleware. `BARE_BODIES` is a folder with `list`, `get` and `create`."""

import os
from pathlib import Path

from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import path

settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="bare", MIDDLEWARE=[], USE_TZ=True)
BODIES = {name: (Path(os.environ["BARE_BODIES"]) / name).read_bytes() for name in ("list", "get", "create")}


async def listed(request: HttpRequest) -> HttpResponse:
    name, status = ("create", 202) if request.method == "POST" else ("list", 200)
    return HttpResponse(BODIES[name], status=status, content_type="application/json")


async def got(request: HttpRequest, compile: str) -> HttpResponse:
    return HttpResponse(BODIES["get"], content_type="application/json")


urlpatterns = [path("v1/compiles", listed), path("v1/compiles/<str:compile>", got)]
application = get_asgi_application()
