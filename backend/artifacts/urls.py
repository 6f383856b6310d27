"""The addresses of artifacts, receipts and public keys."""

from django.urls import path

from backend.artifacts import api

urlpatterns = [
    path("v1/artifacts", api.ArtifactsView.as_view()),
    path("v1/artifacts/<str:artifact>", api.ArtifactView.as_view()),
    path("v1/artifacts/<str:artifact>/download", api.DownloadView.as_view()),
    path("v1/artifacts/<str:artifact>/revoke", api.RevokeView.as_view()),
    path("v1/artifacts/<str:artifact>/verify", api.VerifyView.as_view()),
    path("v1/compiles/<str:compile>/receipts", api.ReceiptsView.as_view()),
    path(".well-known/kolm-keys.json", api.public_keys),
]
