"""The console's addresses. Every page's name is `console:<name>`."""

from django.urls import URLPattern, include, path
from django.views.generic import RedirectView

from backend.console.account.urls import urlpatterns as account
from backend.console.artifacts import pages as artifacts
from backend.console.compiles.urls import urlpatterns as compiles
from backend.console.deployments import pages as deployments
from backend.console.drafts import pages as drafts
from backend.console.gallery import pages as gallery
from backend.console.keys import pages as keys
from backend.console.landing import pages as landing
from backend.console.money.pricing import pricing
from backend.console.money.urls import urlpatterns as money
from backend.console.overview import pages as overview
from backend.console.playground import pages as playground
from backend.console.registry import pages as registry
from backend.console.start import pages as start
from backend.console.uploads import pages as uploads
from backend.console.webhooks import deliveries
from backend.console.webhooks import pages as webhooks

pages: list[URLPattern] = [
    path("", overview.overview, name="overview"),
    path("running", overview.overview_running, name="overview_running"),
    path("search", overview.search, name="search"),
    path("gallery", gallery.gallery, name="gallery"),
    path("gallery/<str:task>/start", gallery.gallery_start, name="gallery_start"),
    path("deployments", deployments.deployments, name="deployments"),
    path("deployments/create", deployments.create, name="deployment_create"),
    path("deployments/<str:deployment>", deployments.deployment, name="deployment"),
    path("deployments/<str:deployment>/change", deployments.change, name="deployment_change"),
    path("deployments/<str:deployment>/delete", deployments.delete, name="deployment_delete"),
    path("deployments/<str:deployment>/<str:verb>", deployments.act, name="deployment_act"),
    path("artifacts", artifacts.artifacts, name="artifacts"),
    path("artifacts/<str:artifact>", artifacts.artifact, name="artifact"),
    path("artifacts/<str:artifact>/download", artifacts.download, name="artifact_download"),
    path("artifacts/<str:artifact>/verify", artifacts.verify, name="artifact_verify"),
    path("artifacts/<str:artifact>/revoke", artifacts.revoke, name="artifact_revoke"),
    path("playground", playground.playground, name="playground"),
    path("playground/ask", playground.ask_both, name="playground_ask"),
    path("playground/answers/<str:answer>", playground.teacher_panel, name="playground_answer"),
    path("start", start.start, name="start"),
    path("start/check", start.check, name="start_check"),
    path("start/forecast", start.forecast, name="start_forecast"),
    path("start/key", start.store_key, name="start_key"),
    path("uploads", uploads.uploads, name="uploads"),
    path("uploads/inspect", uploads.inspect, name="upload_inspect"),
    path("uploads/store", uploads.store, name="upload_store"),
    path("uploads/<str:upload>", uploads.upload, name="upload"),
    path("uploads/<str:upload>/delete", uploads.delete, name="upload_delete"),
    path("uploads/<str:upload>/forecast", uploads.forecast, name="upload_forecast"),
    path("drafts", drafts.drafts, name="drafts"),
    path("drafts/purge", drafts.purge, name="drafts_purge"),
    path("registry", registry.registry, name="registry"),
    path("registry/withdraw", registry.withdraw, name="registry_withdraw"),
    path("api_keys", keys.api_keys, name="api_keys"),
    path("api_keys/create", keys.create, name="api_key_create"),
    path("api_keys/<str:key>/revoke", keys.revoke, name="api_key_revoke"),
    path("api_keys/<str:key>/tags", keys.tags, name="api_key_tags"),
    path("webhooks", webhooks.webhooks, name="webhooks"),
    path("webhooks/create", webhooks.create, name="webhook_create"),
    path("webhooks/deliveries/<str:delivery>", deliveries.delivery, name="webhook_delivery"),
    path("webhooks/deliveries/<str:delivery>/replay", deliveries.replay, name="webhook_replay"),
    path("webhooks/<str:endpoint>", webhooks.webhook, name="webhook"),
    path("webhooks/<str:endpoint>/update", webhooks.update, name="webhook_update"),
    path("webhooks/<str:endpoint>/roll", webhooks.roll, name="webhook_roll"),
    path("webhooks/<str:endpoint>/enable", webhooks.enable, name="webhook_enable"),
    path("webhooks/<str:endpoint>/delete", webhooks.delete, name="webhook_delete"),
    path("webhooks/<str:endpoint>/test", webhooks.test, name="webhook_test"),
    path("webhooks/<str:endpoint>/replay_failed", deliveries.replay_failed, name="webhook_replay_failed"),
]

app_name = "console"
urlpatterns = [
    path("pricing", pricing, name="pricing"),
    path("", landing.landing, name="landing"),
    path("app", RedirectView.as_view(url="/app/")),
    path("app/", include([*pages, *compiles, *money, *account])),
]
