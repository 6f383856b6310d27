"""Addresses of the console's deployment pages."""

from django.urls import URLPattern, path

from backend.console.deployments import pages

urlpatterns: list[URLPattern] = [
    path("deployments", pages.deployments, name="deployments"),
    path("deployments/create", pages.create, name="deployment_create"),
    path("deployments/<str:deployment>", pages.deployment, name="deployment"),
    path("deployments/<str:deployment>/change", pages.change, name="deployment_change"),
    path("deployments/<str:deployment>/delete", pages.delete, name="deployment_delete"),
    path("deployments/<str:deployment>/<str:verb>", pages.act, name="deployment_act"),
]
