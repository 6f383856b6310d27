"""The address that runs an artifact."""

from django.urls import path

from backend.serving.api import RunView

urlpatterns = [path("v1/artifacts/<str:artifact>/run", RunView.as_view())]
