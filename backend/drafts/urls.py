"""The address of the draft cache."""

from django.urls import path

from backend.drafts.api import DraftStatsView

urlpatterns = [path("v1/drafts/stats", DraftStatsView.as_view())]
