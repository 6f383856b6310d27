"""Addresses of the console's overview pages."""

from django.urls import URLPattern, path

from backend.console.overview.pages import pages

urlpatterns: list[URLPattern] = [
    path("", pages.overview, name="overview"),
    path("running", pages.overview_running, name="overview_running"),
    path("search", pages.search, name="search"),
]
