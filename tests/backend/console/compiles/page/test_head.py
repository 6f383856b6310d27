"""The head of a compile's page, in every state: did it work, how good, what did it cost, what next, in this order."""

import pytest

from backend.domain.lifecycle import CompileStatus
from tests.backend.console.compiles.test_pages import judged
from tests.backend.console.pages import get, logged_in
from tests.compile_factories import LABELS, change, make_artifact, make_compile, make_receipts, public_id
from tests.factories import make_tenant

pytestmark = pytest.mark.django_db

UNMEASURED, TO_COME = "Not measured: it ended before its gate.", "Measured on held-out gold after training."
MEASURED = "on 60 held-out inputs"


@pytest.mark.parametrize(
    ("status", "verdict", "quality", "next_words"),
    [
        (CompileStatus.QUEUED, "It is queued", TO_COME, "Get a notification when it ends"),
        (CompileStatus.RUNNING, "It is under way", TO_COME, "Get a notification when it ends"),
        (CompileStatus.FAILED, "It failed at labeling", UNMEASURED, "Finished steps are kept"),
        (CompileStatus.CANCELED, "It was canceled", UNMEASURED, "Resume continues"),
        (CompileStatus.EXPIRED, "It expired", UNMEASURED, "Resume it"),
        (CompileStatus.GATE_FAILED, "It did not pass its gate", MEASURED, "See what it gets wrong"),
        (CompileStatus.SUCCEEDED, "It worked: the gate is passed", MEASURED, "Try it"),
    ],
)
def test_the_head_answers_four_questions_in_order(status, verdict, quality, next_words):
    tenant = make_tenant()
    row = make_compile(tenant)
    fields = {"failed_step": "labeling", "failure_code": "teacher_down"} if status is CompileStatus.FAILED else {}
    if status in (CompileStatus.GATE_FAILED, CompileStatus.SUCCEEDED):
        judged(row, [LABELS[(n + (n < 9)) % 2] for n in range(60)])
    if status is CompileStatus.SUCCEEDED:
        make_receipts(row)
        make_artifact(row)
    change(row, status=status, **fields)
    text = get(logged_in(tenant), f"/app/compiles/{public_id(row)}")
    places = [text.find(words) for words in (verdict, quality, "What it cost", next_words, 'class="tabs')]
    assert -1 not in places, places
    assert places == sorted(places)
