"""/v1/compiles/{id}/ablations: the same candidates compiled with another choice of labels, and the difference."""

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from backend.compiles.api.compiles import COMPILES, find_compile
from backend.compiles.api.serializers import AblationRequest
from backend.compiles.api.shapes import AblationShape
from backend.compiles.lifecycle import ablations
from backend.compiles.shapes import CompileShape
from backend.domain.planning.ablations import Arm
from backend.rest.pagination import page_schema, whole_list
from backend.rest.strict import check_query
from backend.tenants.idempotency import IDEMPOTENCY_KEY, idempotent


class AblationsView(APIView):
    permission_classes = COMPILES

    @extend_schema(operation_id="compiles_ablations", responses=page_schema("AblationList", AblationShape()))
    def get(self, request: Request, compile: str) -> Response:
        """The compile's ablations, newest first: each arm's state and, once measured, what selection was worth."""
        check_query(request.query_params, [])
        return whole_list([AblationShape.of(arm) for arm in ablations.arms_of(find_compile(request, compile))])

    @extend_schema(
        operation_id="compiles_ablate",
        parameters=[IDEMPOTENCY_KEY],
        request=AblationRequest,
        responses={202: CompileShape},
    )
    @idempotent
    def post(self, request: Request, compile: str) -> Response:
        """Compile the same candidates once more without selection, or with a fixed plan. The arm is a compile of its
        own, with its own budget; candidates, scores and the labels already bought are taken over and cost nothing."""
        source = find_compile(request, compile)
        form = AblationRequest(data=request.data or {})
        form.is_valid(raise_exception=True)
        row = ablations.start(
            source,
            Arm(form.validated_data["arm"]),
            budget_microusd=form.validated_data.get("budget_microusd"),
            api_key_id=request.auth.api_key_id,
        )
        row.refresh_from_db()
        shape = CompileShape.of(row)
        return Response(shape, status=202, headers={"Location": f"/v1/compiles/{shape['id']}"})
