"""/v1/compiles/{id}/answers and /confusions: the held-out answers one by one, and what is taken for what in them."""

from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework import serializers as s
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from backend.compiles.answer_shapes import ConfusionsShape, HeldoutAnswerShape
from backend.compiles.api.compiles import READ_ONLY, find_compile
from backend.compiles.heldout import confusions_of, heldout_answers, page_of_answers
from backend.domain.evaluation.wrong_answers import AnswerFilter
from backend.rest.pagination import DEFAULT_LIMIT, MAX_LIMIT, page_schema
from backend.rest.strict import StrictSerializer, check_query

MAX_VALUE = 1_000  # characters of a filter


class AnswersQuery(StrictSerializer):
    limit = s.IntegerField(default=DEFAULT_LIMIT, min_value=1, max_value=MAX_LIMIT)
    after = s.IntegerField(required=False, min_value=0, help_text="The row behind which the page begins.")
    before = s.IntegerField(required=False, min_value=0, help_text="The row ahead of which the page ends.")
    wrong = s.BooleanField(required=False, help_text="The wrong ones alone, or the right ones.")
    label = s.CharField(required=False, max_length=MAX_VALUE, help_text="Label tasks: gold or the answer is this.")
    field = s.CharField(required=False, max_length=MAX_VALUE, help_text="Json tasks: this field differs from gold.")
    gold = s.CharField(
        required=False,
        allow_blank=True,
        trim_whitespace=False,
        max_length=MAX_VALUE,
        help_text="Gold's value where the answer differs, in `field` where that is there: JSON, or a text; null for "
        "one that is absent. Label tasks: the label.",
    )
    predicted = s.CharField(
        required=False,
        allow_blank=True,
        trim_whitespace=False,
        max_length=MAX_VALUE,
        help_text="The value that was answered in its place, likewise. Label tasks: the label, empty for none of them.",
    )
    check = s.CharField(required=False, max_length=MAX_VALUE, help_text="The answer fails this check.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if "after" in attrs and "before" in attrs:
            raise s.ValidationError({"before": ["Give either `after` or `before`, not both."]})
        return attrs


class AnswersView(APIView):
    permission_classes: ClassVar = READ_ONLY

    @extend_schema(
        operation_id="compiles_answers",
        parameters=[AnswersQuery],
        responses=page_schema("HeldoutAnswerList", HeldoutAnswerShape()),
    )
    def get(self, request: Request, compile: str) -> Response:
        """The held-out inputs with gold and the answer, in the order of the rows: what differs, which checks fail, and
        where the values stand in the input. Of a compile below its gate too; 409 `not_evaluated` before the step
        evaluation has ended."""
        check_query(request.query_params, AnswersQuery().fields)
        query = AnswersQuery(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        asked = dict(query.validated_data)
        cursor = {name: asked.pop(name) for name in ("limit", "after", "before") if name in asked}
        answers = heldout_answers(find_compile(request, compile))
        wanted = AnswerFilter.of_task(answers.output, is_wrong=asked.pop("wrong", None), **asked)
        page = page_of_answers(answers, wanted, **cursor)
        edge = page.answers[0 if "before" in cursor else -1].row if page.has_more else None
        return Response(
            {
                "object": "list",
                "data": [HeldoutAnswerShape.of(one) for one in page.answers],
                "has_more": page.has_more,
                "next_cursor": None if edge is None else str(edge),
            }
        )


class ConfusionsView(APIView):
    permission_classes: ClassVar = READ_ONLY

    @extend_schema(operation_id="compiles_confusions", responses=ConfusionsShape)
    def get(self, request: Request, compile: str) -> Response:
        """The faults of the held-out answers: the fields or labels, the worst first, and the values that are most often
        taken for another. 409 `not_evaluated` before the step evaluation has ended."""
        check_query(request.query_params, [])
        return Response(ConfusionsShape.of(confusions_of(find_compile(request, compile))))
