"""/v1/uploads/{upload}/learning_curve: what an upload's examples teach, before anything is compiled."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers as s
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from backend.compiles.models import Upload
from backend.compiles.uploads import deletion
from backend.compiles.uploads.curves import curve_of
from backend.domain.ids import Prefix, decode_id
from backend.domain.labeling.learning_curves import PPM, CurvePoint
from backend.domain.planning.quality_forecast import Expected, forecast_of
from backend.rest.shapes import Constant, Shape
from backend.rest.strict import check_query
from backend.tenants.api_keys.authentication import IsTenant
from backend.tenants.permissions import HasScope

PENDING, MEASURED, NOT_POSSIBLE = "pending", "measured", "not_possible"


class CurvePointShape(Shape[CurvePoint]):
    n = s.IntegerField(help_text="Examples that each of five models learned from, on average.")
    accuracy_ppm = s.IntegerField(help_text="Share of answers that were right, on examples that model had not seen.")

    def get_accuracy_ppm(self, row: CurvePoint) -> int:
        return round(row.accuracy * PPM)


class ExpectedShape(Shape[Expected]):
    n = s.IntegerField(help_text="Training examples.")
    accuracy_low_ppm = s.IntegerField(help_text="Lower end of the 90 % interval.")
    accuracy_ppm = s.IntegerField()
    accuracy_high_ppm = s.IntegerField()

    def get_accuracy_low_ppm(self, row: Expected) -> int:
        return round(row.low * PPM)

    def get_accuracy_ppm(self, row: Expected) -> int:
        return round(row.expected * PPM)

    def get_accuracy_high_ppm(self, row: Expected) -> int:
        return round(row.high * PPM)


class LearningCurveShape(s.Serializer[Any]):
    """`pending`: a worker measures it; ask again in two seconds. `not_possible`: `reason` says why."""

    object = Constant("learning_curve")
    upload = s.CharField()
    status = s.ChoiceField([PENDING, MEASURED, NOT_POSSIBLE])
    reason = s.CharField(allow_null=True)
    n_train = s.IntegerField(allow_null=True, help_text="Examples of the upload that may train.")
    n_measured = s.IntegerField(allow_null=True, help_text="How many of them were embedded.")
    n_labels = s.IntegerField(allow_null=True)
    points = CurvePointShape(many=True)
    expected = ExpectedShape(
        many=True, help_text="With all of them, and where it can be said twice and four times as many."
    )


class LearningCurveView(APIView):
    permission_classes: list[type[BasePermission]] = [IsTenant, HasScope("uploads")]

    @extend_schema(operation_id="uploads_learning_curve", responses=LearningCurveShape)
    def get(self, request: Request, upload: str) -> Response:
        """The accuracy of a logistic regression on embeddings over the number of examples, measured in five folds once
        for each upload of a label task, and what more such examples would bring."""
        check_query(request.query_params, [])
        row = deletion.find(request.auth.tenant_id, decode_id(Prefix.UPLOAD, upload))
        return Response(_answer(row, upload))


def _answer(row: Upload, public_id: str) -> dict[str, Any]:
    answer = curve_of(row)
    curve = answer.curve
    status = PENDING if answer.is_pending else NOT_POSSIBLE if curve is None else MEASURED
    forecast = None if curve is None else forecast_of(curve)
    return {
        "object": "learning_curve",
        "upload": public_id,
        "status": status,
        "reason": answer.reason or None,
        "n_train": curve and curve.n_train,
        "n_measured": curve and curve.n_measured,
        "n_labels": curve and curve.n_labels,
        "points": [CurvePointShape.of(point) for point in (curve.points if curve else ())],
        "expected": [ExpectedShape.of(one) for one in ((forecast.own, *forecast.more) if forecast else ())],
    }
