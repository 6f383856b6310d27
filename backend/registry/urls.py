"""The addresses of the registry of recipes."""

from django.urls import path

from backend.registry import api

urlpatterns = [
    path("v1/registry/epochs", api.EpochsView.as_view()),
    path("v1/registry/epochs/<str:epoch>", api.EpochView.as_view()),
    path("v1/registry/epochs/<str:epoch>/download", api.EpochDownloadView.as_view()),
    path("v1/registry/epochs/<str:epoch>/proof", api.EpochProofView.as_view()),
    path("v1/registry/contributions", api.ContributionsView.as_view()),
]
