"""The addresses of selections."""

from django.urls import path

from backend.selections import api, result_api

urlpatterns = [
    path("v1/select", api.SelectionsView.as_view()),
    path("v1/select/<str:selection>", api.SelectionView.as_view()),
    path("v1/select/<str:selection>/cancel", api.CancelSelectionView.as_view()),
    path("v1/select/<str:selection>/picks", result_api.PicksView.as_view()),
    path("v1/select/<str:selection>/rows", result_api.SelectRowsView.as_view()),
]
