"""The addresses of specs, compiles, uploads and teacher keys."""

from django.urls import path

from backend.compiles import ablation_api, api, material_api
from backend.compiles.event_stream import compile_events

urlpatterns = [
    path("v1/specs/schema", api.SpecSchemaView.as_view()),
    path("v1/specs/validate", api.SpecValidateView.as_view()),
    path("v1/compiles", api.CompilesView.as_view()),
    path("v1/compiles/estimate", api.EstimateView.as_view()),
    path("v1/compiles/<str:compile>", api.CompileView.as_view()),
    path("v1/compiles/<str:compile>/events", compile_events),
    path("v1/compiles/<str:compile>/steps", api.StepsView.as_view()),
    path("v1/compiles/<str:compile>/slices", api.SlicesView.as_view()),
    path("v1/compiles/<str:compile>/candidates", api.CandidatesView.as_view()),
    path("v1/compiles/<str:compile>/usage", api.UsageView.as_view()),
    path("v1/compiles/<str:compile>/bill", api.BillView.as_view()),
    path("v1/compiles/<str:compile>/ablations", ablation_api.AblationsView.as_view()),
    path("v1/compiles/<str:compile>/cancel", api.CancelView.as_view()),
    path("v1/compiles/<str:compile>/resume", api.ResumeView.as_view()),
    path("v1/uploads", material_api.UploadsView.as_view()),
    path("v1/uploads/<str:upload>", material_api.UploadView.as_view()),
    path("v1/teacher_keys", material_api.TeacherKeysView.as_view()),
    path("v1/teacher_keys/<str:key>", material_api.TeacherKeyView.as_view()),
]
