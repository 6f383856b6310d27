"""Addresses of the console's overview pages."""

from django.urls import URLPattern, path

from backend.console import overview

urlpatterns: list[URLPattern] = [
    path("", overview.overview, name="overview"),
    path("running", overview.overview_running, name="overview_running"),
    path("search", overview.search, name="search"),
]
