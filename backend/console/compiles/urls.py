"""Addresses of the console's compile pages."""

from django.urls import path

from backend.console.compiles import actions, answers, comparison, data, editor, lists, pages
from backend.console.compiles.event_stream import compile_events

urlpatterns = [
    path("compiles", lists.compiles, name="compiles"),
    path("compiles/new", editor.compile_new, name="compile_new"),
    path("compiles/new/check", editor.check_spec, name="compile_check"),
    path("compiles/new/preflight", editor.preflight_spec, name="compile_preflight"),
    path("compiles/new/drafts", editor.expected_drafts, name="compile_drafts"),
    path("compiles/compare", comparison.compile_compare, name="compile_compare"),
    path("compiles/<str:compile>", pages.compile_page, name="compile"),
    path("compiles/<str:compile>/parts/<str:part>", pages.compile_part, name="compile_part"),
    path("compiles/<str:compile>/events", compile_events, name="compile_events"),
    path("compiles/<str:compile>/verify", actions.verify, name="compile_verify"),
    path("compiles/<str:compile>/cancel", actions.cancel, name="compile_cancel"),
    path("compiles/<str:compile>/resume", actions.resume, name="compile_resume"),
    path("compiles/<str:compile>/ablate", actions.ablate, name="compile_ablate"),
    path("compiles/<str:compile>/answers", answers.compile_answers, name="compile_answers"),
    path("compiles/<str:compile>/data", data.compile_data, name="compile_data"),
    path("compiles/<str:compile>/data.jsonl", data.download, name="compile_data_jsonl"),
]
