"""The address of a spec's check."""

from django.urls import path

from backend.preflight.api import SpecValidateView

urlpatterns = [path("v1/specs/validate", SpecValidateView.as_view())]
