"""Addresses of the console's compile pages."""

from django.urls import path

from backend.console import compile_actions, compile_compare, compile_data, compile_lists, compile_new, compile_pages
from backend.console.compile_stream import compile_events

urlpatterns = [
    path("compiles", compile_lists.compiles, name="compiles"),
    path("compiles/new", compile_new.compile_new, name="compile_new"),
    path("compiles/new/check", compile_new.check_spec, name="compile_check"),
    path("compiles/new/drafts", compile_new.expected_drafts, name="compile_drafts"),
    path("compiles/compare", compile_compare.compile_compare, name="compile_compare"),
    path("compiles/<str:compile>", compile_pages.compile_page, name="compile"),
    path("compiles/<str:compile>/parts/<str:part>", compile_pages.compile_part, name="compile_part"),
    path("compiles/<str:compile>/events", compile_events, name="compile_events"),
    path("compiles/<str:compile>/verify", compile_actions.verify, name="compile_verify"),
    path("compiles/<str:compile>/cancel", compile_actions.cancel, name="compile_cancel"),
    path("compiles/<str:compile>/resume", compile_actions.resume, name="compile_resume"),
    path("compiles/<str:compile>/ablate", compile_actions.ablate, name="compile_ablate"),
    path("compiles/<str:compile>/data", compile_data.compile_data, name="compile_data"),
    path("compiles/<str:compile>/data.jsonl", compile_data.download, name="compile_data_jsonl"),
]
