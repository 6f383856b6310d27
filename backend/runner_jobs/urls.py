"""Addresses for runners."""

from django.urls import path

from backend.runner_jobs import api, upload_api

urlpatterns = [
    path("internal/runner/claim", api.claim),
    path("internal/runner/jobs/<str:job_id>/heartbeat", api.heartbeat),
    path("internal/runner/jobs/<str:job_id>/report", api.report),
    path("internal/runner/jobs/<str:job_id>/blobs/<str:sha256>", api.blob),
    path("internal/runner/jobs/<str:job_id>/uploads/<str:sha256>/<int:n_bytes>", upload_api.upload),
    path("internal/runner/jobs/<str:job_id>/uploads/<str:sha256>/<int:n_bytes>/parts/<int:number>", upload_api.part),
]
