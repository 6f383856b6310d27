"""The addresses of webhooks."""

from django.urls import path

from backend.webhooks import api, log_api

urlpatterns = [
    path("v1/webhook_endpoints", api.EndpointsView.as_view()),
    path("v1/webhook_endpoints/<str:endpoint>", api.EndpointView.as_view()),
    path("v1/webhook_endpoints/<str:endpoint>/roll", api.RollView.as_view()),
    path("v1/webhook_endpoints/<str:endpoint>/reveal", api.RevealView.as_view()),
    path("v1/webhook_endpoints/<str:endpoint>/enable", api.EnableView.as_view()),
    path("v1/webhook_endpoints/<str:endpoint>/disable", api.DisableView.as_view()),
    path("v1/webhook_endpoints/<str:endpoint>/test", api.TestView.as_view()),
    path("v1/webhook_endpoints/<str:endpoint>/replay", api.ReplayFailedView.as_view()),
    path("v1/webhook_events", log_api.EventsView.as_view()),
    path("v1/webhook_events/feed", log_api.FeedView.as_view()),
    path("v1/webhook_events/<str:event>", log_api.EventView.as_view()),
    path("v1/webhook_deliveries", log_api.DeliveriesView.as_view()),
    path("v1/webhook_deliveries/<str:delivery>", log_api.DeliveryView.as_view()),
    path("v1/webhook_deliveries/<str:delivery>/replay", log_api.ReplayView.as_view()),
]
