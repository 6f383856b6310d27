"""The table of contents of the HTTP surface."""

from django.urls import include, path
from drf_spectacular.views import SpectacularJSONAPIView

from backend.console.account.security import start_sso
from backend.console.docs_site import docs_page, docs_root
from backend.rest.health import healthz, readyz

openapi = SpectacularJSONAPIView.as_view(authentication_classes=[], permission_classes=[], throttle_classes=[])

urlpatterns = [
    path("healthz", healthz),
    path("readyz", readyz),
    path("docs", docs_root),
    path("docs/", docs_page, {"path": ""}),
    path("docs/<path:path>", docs_page),
    path("v1/openapi.json", openapi),
    path("", include("backend.tenants.urls")),
    path("", include("backend.compiles.urls")),
    path("", include("backend.drafts.urls")),  # behind the compiles', which have `v1/drafts/stats`
    path("", include("backend.artifacts.urls")),
    path("", include("backend.runner_jobs.urls")),
    path("", include("backend.preflight.urls")),
    path("", include("backend.serving.urls")),
    path("", include("backend.registry.urls")),
    path("", include("backend.selections.urls")),
    path("", include("backend.webhooks.urls")),
    path("", include("backend.usage.urls")),
    path("", include("backend.billing.urls")),
    path("", include("backend.console.urls", namespace="console")),
    path("accounts/oidc/<str:provider_id>/login/", start_sso),
    path("accounts/", include("allauth.urls")),
]

handler400 = "backend.rest.problems.bad_request"
handler403 = "backend.rest.problems.permission_denied"
handler404 = "backend.console.errors.not_found_page"
handler500 = "backend.console.errors.server_error"
