"""POST /v1/artifacts/{id}/run: the artifact answers, on a runner.

The web process loads no model: it queues an `infer` job, which an idle runner takes at once (runners wait with an open
request), and holds the request until the result is there.
"""

from typing import Any, ClassVar
from uuid import UUID

from django.db import transaction
from django.utils.decorators import method_decorator
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers as s
from rest_framework.exceptions import ErrorDetail
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from backend.artifacts.api import find_artifact
from backend.artifacts.revoking import check_usable
from backend.domain.ids import Prefix, encode_id
from backend.rest.strict import StrictSerializer
from backend.serving.running import run_inputs
from backend.tenants.api_keys.authentication import IsTenant
from backend.tenants.isolation import tenant_scope
from backend.tenants.permissions import HasScope
from backend.usage.accounts import check_open

MAX_INPUTS = 64
MAX_CHARS = 8_000
WAIT_S = 30.0


_TEXT = {"type": "string", "maxLength": MAX_CHARS}
_TEXTS = {"type": "array", "items": _TEXT, "minItems": 1, "maxItems": MAX_INPUTS}


@extend_schema_field({"oneOf": [_TEXT, _TEXTS]})
class OneOrMany(s.ListField):
    """A list of texts, or one text that stands for a list of one."""

    def to_internal_value(self, data: Any) -> Any:
        return super().to_internal_value([data] if isinstance(data, str) else data)


class RunRequest(StrictSerializer):
    inputs = s.ListField(
        child=s.CharField(max_length=MAX_CHARS, trim_whitespace=False),
        min_length=1,
        max_length=MAX_INPUTS,
        required=False,
        help_text="Texts to answer.",
    )
    input = OneOrMany(
        child=s.CharField(max_length=MAX_CHARS, trim_whitespace=False),
        min_length=1,
        max_length=MAX_INPUTS,
        required=False,
        help_text="In place of `inputs`: one text, or the list of them.",
    )

    def validate(self, attrs: dict[str, list[str]]) -> dict[str, list[str]]:
        if len(attrs) != 1:
            message = 'Send {"inputs": ["text", ...]}, or {"input": "text"} in its place.'
            raise s.ValidationError({"inputs": [ErrorDetail(message, code="required")]})
        return attrs


class RunField(s.Serializer[object]):
    path = s.CharField(help_text="The field's place in `output`, such as /lines/0/sku.")
    start = s.IntegerField(
        allow_null=True,
        help_text="Where the value stands in the input, in Unicode code points; null where it was not copied from it.",
    )
    end = s.IntegerField(allow_null=True, help_text="One past the last code point.")
    confidence_ppm = s.IntegerField(
        help_text="Calibrated: of fields with 900,000, about nine in ten are right. Of rules, a lower bound."
    )


class RunOutput(s.Serializer[object]):
    label = s.CharField(required=False, help_text="Of a label task.")
    confidence = s.FloatField(
        required=False,
        help_text="Of a label task, and of a json task's span student, there for the whole answer. An encoder's is "
        "calibrated on validation pairs: of answers given with 0.9, about nine in ten are right. A causal model's is "
        "the probability of the label among the labels. A rule's is the lower bound of its precision.",
    )
    is_unsure = s.BooleanField(
        required=False,
        help_text="Of a task with output.abstain: whether the confidence is below its threshold. The label stays.",
    )
    output = s.CharField(required=False, help_text="Of a json or text task: the answer, JSON as its text.")
    finish_reason = s.ChoiceField(
        ["stop", "length"], required=False, help_text="`length`: the answer was cut at its longest."
    )
    n_tokens = s.IntegerField(
        required=False, help_text="Tokens written of a json or text answer; 0 of a span student, which writes none."
    )
    fields = s.ListField(  # type: ignore[assignment]  # the answer's member, not the serializer's own
        child=RunField(),
        required=False,
        help_text="Of a json task's span student or rules: each field of `output`, where it was read and how sure that "
        "is. Empty where rules of an older artifact answered.",
    )
    latency_us = s.IntegerField()
    rule = s.IntegerField(
        required=False,
        help_text="Where a rule answered in the model's place: its number, from 1, as `kolm rules` lists them; 0: the "
        "field rules of a json task together. `confidence` is then the lower bound of the precision that the compile "
        "measured: of the rule, or of the whole answers of a json task.",
    )


class RunShape(s.Serializer[object]):
    object = s.ChoiceField(["run"])
    artifact = s.CharField()
    outputs = s.ListField(child=RunOutput())
    load_ms = s.IntegerField(help_text="Time the runner took to load the artifact; 0 when it had it.")
    cost_microusd = s.IntegerField(help_text="For the time of the outputs' own answers; loading is on no bill.")


@method_decorator(transaction.non_atomic_requests, name="dispatch")
class RunView(APIView):
    """Run inputs outside a transaction: the job must be visible to runners while this request waits for it."""

    permission_classes: list[type[BasePermission]] = [IsTenant, HasScope("artifacts:run")]
    spending_methods: ClassVar = ("POST",)

    @extend_schema(operation_id="artifacts_run", request=RunRequest, responses=RunShape)
    def post(self, request: Request, artifact: str) -> Response:
        """Answer up to 64 inputs: label and confidence, or the answer itself, and the latency."""
        tenant_id: UUID = request.auth.tenant_id
        with tenant_scope(tenant_id):
            row = find_artifact(request, artifact)
            check_usable(row)
            form = RunRequest(data=request.data)
            form.is_valid(raise_exception=True)
            (inputs,) = form.validated_data.values()
            check_open(tenant_id, request.auth.api_key_id)
        result, cost = run_inputs(row, inputs, wait_s=WAIT_S, api_key_id=request.auth.api_key_id)
        body: dict[str, Any] = {
            "object": "run",
            "artifact": encode_id(Prefix.ARTIFACT, row.id),
            "outputs": result.outputs,
            "load_ms": result.load_ms,
            "cost_microusd": cost,
        }
        return Response(body)
