"""The addresses of the draft cache. `v1/drafts/stats` is in `backend.compiles.urls`, which is asked before these."""

from django.urls import path

from backend.drafts import api

urlpatterns = [
    path("v1/drafts", api.DraftsView.as_view()),
    path("v1/drafts/preview", api.PreviewView.as_view()),
    path("v1/drafts/<str:draft>", api.DraftView.as_view()),
]
