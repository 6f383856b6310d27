"""The addresses that run an artifact, of deployments, of OpenAI's API, and of the servers."""

from django.urls import path

from backend.serving.api import deployments
from backend.serving.api.run import RunView
from backend.serving.gateway import openai_views
from backend.serving.runners import runner_api

urlpatterns = [
    path("v1/artifacts/<str:artifact>/run", RunView.as_view()),
    path("v1/deployments", deployments.DeploymentsView.as_view()),
    path("v1/deployments/<str:deployment>", deployments.DeploymentView.as_view()),
    path("v1/deployments/<str:deployment>/hours", deployments.HoursView.as_view()),
    path("v1/deployments/<str:deployment>/promote", deployments.PromoteView.as_view()),
    path("v1/deployments/<str:deployment>/rollback", deployments.RollbackView.as_view()),
    path("v1/deployments/<str:deployment>/drain", deployments.DrainView.as_view()),
    path("v1/deployments/<str:deployment>/start", deployments.StartView.as_view()),
    path("v1/chat/completions", openai_views.chat_completions),
    path("v1/completions", openai_views.completions),
    path("v1/responses", openai_views.responses),
    path("v1/models", openai_views.models),
    path("v1/models/<str:model>", openai_views.model),
    path("internal/runner/servers", runner_api.register_server),
    path("internal/runner/artifacts/<str:sha256>", runner_api.artifact),
    path("internal/runner/usage", runner_api.usage),
    path("internal/runner/pack-feedback", runner_api.feedback),
]
