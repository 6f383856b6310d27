"""`/`: what kolm is and what it is worth, in one screen, for who is not logged in; all others go to their console.

Its figures are those of committed benches: `figures.json` names for each the bench and the words that stand there (a
test looks), the picture is the quality card of the gallery's first task.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe

from backend.console.charts import card_figure
from backend.console.gallery.tasks import read_measured
from backend.console.returning import CONSOLE

FIGURES = Path(__file__).parent / "figures.json"
SHOWN_TASK = "refund-router"
N_ROWS = 4  # of the card: the student, the teacher and the nearest alternatives


@cache
def figures() -> Sequence[Mapping[str, Any]]:
    """The three figures with what they stand beside, and where each was measured."""
    rows: list[dict[str, Any]] = json.loads(FIGURES.read_text(encoding="utf-8"))
    return rows


@cache
def shown_card() -> Any:
    """The picture of the card of one measured compile."""
    rows = read_measured()["tasks"][SHOWN_TASK]["runs"][0]["rows"][:N_ROWS]
    return card_figure({"rows": rows}, title=f"Quality card of {SHOWN_TASK}")


@require_safe
@transaction.non_atomic_requests
def landing(request: HttpRequest) -> HttpResponse:
    if request.user.is_authenticated:
        return redirect(CONSOLE)
    return render(request, "console/landing/landing.html", {"figures": figures(), "card": shown_card()})
