"""The addresses that run an artifact, of deployments, of OpenAI's API, and of the servers."""

from django.urls import path

from backend.serving import deployments_api, gateway, runner_api
from backend.serving.api import RunView

urlpatterns = [
    path("v1/artifacts/<str:artifact>/run", RunView.as_view()),
    path("v1/deployments", deployments_api.DeploymentsView.as_view()),
    path("v1/deployments/<str:deployment>", deployments_api.DeploymentView.as_view()),
    path("v1/deployments/<str:deployment>/hours", deployments_api.HoursView.as_view()),
    path("v1/deployments/<str:deployment>/promote", deployments_api.PromoteView.as_view()),
    path("v1/deployments/<str:deployment>/rollback", deployments_api.RollbackView.as_view()),
    path("v1/deployments/<str:deployment>/drain", deployments_api.DrainView.as_view()),
    path("v1/deployments/<str:deployment>/start", deployments_api.StartView.as_view()),
    path("v1/chat/completions", gateway.chat_completions),
    path("v1/completions", gateway.completions),
    path("v1/models", gateway.models),
    path("v1/models/<str:model>", gateway.model),
    path("internal/runner/servers", runner_api.hello),
    path("internal/runner/artifacts/<str:sha256>", runner_api.artifact),
    path("internal/runner/usage", runner_api.usage),
    path("internal/runner/pack-feedback", runner_api.feedback),
]
