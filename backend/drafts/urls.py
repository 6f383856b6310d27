"""The addresses of the draft cache."""

from django.urls import path

from backend.drafts import api

urlpatterns = [
    path("v1/drafts", api.DraftsView.as_view()),
    path("v1/drafts/stats", api.DraftStatsView.as_view()),
    path("v1/drafts/preview", api.PreviewView.as_view()),
    path("v1/drafts/<str:draft>", api.DraftView.as_view()),
]
