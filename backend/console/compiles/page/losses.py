"""The loss of a training: from the log that a finished one leaves, and from its runner's reports while it trains."""

from collections.abc import Mapping, Sequence
from typing import Any

from backend.compiles.models import Compile, CompileEvent
from backend.domain.lifecycle import StepName

MAX_REPORTS = 2_000  # read of a training's reports, the newest
MAX_POINTS = 400  # drawn
TRAINS = (StepName.DISTILLATION, StepName.EVALUATION)  # further trials train in the evaluation


def loss_curve(training: Mapping[str, Any]) -> dict[str, Any] | None:
    """The training log as the chart wants it: epochs counted through, the losses of each fit; None without one."""
    log = training.get("training_log") or []
    rows = [entry for entry in log if isinstance(entry.get("train_loss"), int | float)]
    if not rows:
        return None
    curves = {
        "training, calibration": [row["train_loss"] if row.get("fit") == "calibrate" else None for row in rows],
        "validation loss": [row.get("validation_loss") for row in rows],
        "training, every pair": [
            row["train_loss"] if row.get("fit", "calibrate") != "calibrate" else None for row in rows
        ],
        "training": [None if "fit" in row else row["train_loss"] for row in rows],
    }
    series = [
        {"label": label, "values": values} for label, values in curves.items() if any(v is not None for v in values)
    ]
    plot = {"x": list(range(1, len(rows) + 1)), "series": series, "x_label": "epoch", "y_label": "loss"}
    return {"rows": rows, "plot": plot}


def loss_so_far(row: Compile) -> dict[str, Any] | None:
    """The losses that runners have reported so far, report by report; None before the first. `latest` is the newest
    report."""
    events = CompileEvent.objects.of_tenant(row.tenant_id).filter(
        compile=row, type="step.progress", data__step__in=[step.value for step in TRAINS], data__has_key="loss"
    )
    reports = [event.data for event in reversed(events.only("data", "tenant_id").order_by("-seq")[:MAX_REPORTS])]
    return reported_curve(reports)


def reported_curve(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """A curve for each fit, over the steps of its training: a fit is what a report's message begins with.

    >>> reports = [{"done": n, "loss": 1 / n, "message": f"refit, epoch {n} of 2"} for n in (1, 2)]
    >>> reported_curve(reports)["plot"]
    {'x': [1, 2], 'series': [{'label': 'refit', 'values': [1.0, 0.5]}], 'x_label': 'training step', 'y_label': 'loss'}
    """
    known = [one for one in reports if isinstance(one.get("loss"), int | float) and isinstance(one.get("done"), int)]
    if not known:
        return None
    thinned = known[:: -(-len(known) // MAX_POINTS)]
    if thinned[-1] is not known[-1]:
        thinned.append(known[-1])
    places = sorted({one["done"] for one in thinned})
    fits: dict[str, dict[int, float]] = {}
    for one in thinned:
        fits.setdefault(_fit_of(one), {})[one["done"]] = float(one["loss"])
    series = [{"label": fit, "values": [losses.get(at) for at in places]} for fit, losses in fits.items()]
    plot = {"x": places, "series": series, "x_label": "training step", "y_label": "loss"}
    return {"rows": [], "plot": plot, "latest": known[-1]}


def _fit_of(report: Mapping[str, Any]) -> str:
    message = str(report.get("message") or "")
    return message.split(", ")[0] if ", epoch" in message else "training"
