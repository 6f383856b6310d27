"""The addresses of specs, compiles, uploads and teacher keys, and of what drafts saved."""

from django.urls import path

from backend.compiles.api import ablations, answers, compiles, curves, drafts, material, teacher_prices, uploads
from backend.compiles.api.event_stream import compile_events

urlpatterns = [
    path("v1/specs/schema", compiles.SpecSchemaView.as_view()),
    path("v1/compiles", compiles.CompilesView.as_view()),
    path("v1/compiles/estimate", compiles.EstimateView.as_view()),
    path("v1/compiles/<str:compile>", compiles.CompileView.as_view()),
    path("v1/compiles/<str:compile>/events", compile_events),
    path("v1/compiles/<str:compile>/steps", compiles.StepsView.as_view()),
    path("v1/compiles/<str:compile>/slices", compiles.SlicesView.as_view()),
    path("v1/compiles/<str:compile>/candidates", compiles.CandidatesView.as_view()),
    path("v1/compiles/<str:compile>/answers", answers.AnswersView.as_view()),
    path("v1/compiles/<str:compile>/confusions", answers.ConfusionsView.as_view()),
    path("v1/compiles/<str:compile>/drafts", drafts.CompileDraftsView.as_view()),
    path("v1/compiles/<str:compile>/usage", compiles.UsageView.as_view()),
    path("v1/compiles/<str:compile>/bill", compiles.BillView.as_view()),
    path("v1/compiles/<str:compile>/ablations", ablations.AblationsView.as_view()),
    path("v1/compiles/<str:compile>/cancel", compiles.CancelView.as_view()),
    path("v1/compiles/<str:compile>/resume", compiles.ResumeView.as_view()),
    path("v1/drafts/stats", drafts.DraftStatsView.as_view()),
    path("v1/teacher_prices", teacher_prices.TeacherPricesView.as_view()),
    path("v1/uploads", uploads.UploadsView.as_view()),
    path("v1/uploads/inspect", uploads.InspectView.as_view()),
    path("v1/uploads/<str:upload>", uploads.UploadView.as_view()),
    path("v1/uploads/<str:upload>/learning_curve", curves.LearningCurveView.as_view()),
    path("v1/teacher_keys", material.TeacherKeysView.as_view()),
    path("v1/teacher_keys/<str:key>", material.TeacherKeyView.as_view()),
    path("v1/teacher_keys/<str:key>/test", material.TeacherKeyTestView.as_view()),
]
