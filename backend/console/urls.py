"""The console's addresses: one file of them for each part of it. Every page's name is `console:<name>`."""

from django.urls import include, path
from django.views.generic import RedirectView

from backend.console.account.urls import urlpatterns as account
from backend.console.compiles.urls import urlpatterns as compiles
from backend.console.deployment_urls import urlpatterns as deployments
from backend.console.money.urls import urlpatterns as money
from backend.console.overview_urls import urlpatterns as overview
from backend.console.resource_urls import urlpatterns as resources

app_name = "console"
urlpatterns = [
    path("", RedirectView.as_view(url="/app/")),
    path("app", RedirectView.as_view(url="/app/")),
    path("app/", include([*overview, *compiles, *deployments, *money, *resources, *account])),
]
