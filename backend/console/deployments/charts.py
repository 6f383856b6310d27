"""The charts of a deployment's page: what it answered by hour, how fast, and how well beside its teacher."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.utils.safestring import SafeString

from backend.console.charts import columns, line
from backend.console.templatetags.kolm import count, pct
from backend.domain.number_words import milliseconds
from backend.serving.models import DeploymentHour
from backend.serving.shapes import DeploymentFiguresShape

MS = 1_000


def by_hour(hours: Sequence[DeploymentHour], *, since: datetime, until: datetime) -> list[tuple[datetime, Any]]:
    """Every hour of the span with its figures over all artifacts; None for an hour without requests."""
    hours_by_start: defaultdict[datetime, list[DeploymentHour]] = defaultdict(list)
    for row in hours:
        hours_by_start[row.hour].append(row)
    first = since.replace(minute=0, second=0, microsecond=0)
    every = [first + timedelta(hours=n) for n in range(int((until - first) / timedelta(hours=1)) + 1)]
    return [(hour, DeploymentFiguresShape.of(hours_by_start[hour]) if hours_by_start[hour] else None) for hour in every]


def tokens_chart(hours: Sequence[tuple[datetime, Any]]) -> SafeString:
    rows = [
        (f"{hour:%H:00}", [0, 0] if f is None else [f["prompt_tokens"], f["completion_tokens"]]) for hour, f in hours
    ]
    total = sum(sum(values) for _, values in rows)
    return columns(rows, ["Prompt", "Answer"], title="Tokens by hour", desc=f"{count(total)} tokens", write=count)


def first_token_chart(hours: Sequence[tuple[datetime, Any]]) -> SafeString:
    """Half of the requests had their first token within p50, all but one in a hundred within p99."""
    series = [
        (name, [(n, _ms(f, key)) for n, (_, f) in enumerate(hours)])
        for name, key in (("p50", "first_token_p50_us"), ("p99", "first_token_p99_us"))
    ]
    return line(
        series,
        title="Time to the first token",
        write=lambda value: "" if value is None else milliseconds(value * MS),
        write_x=_hour_of(hours),
        from_zero=True,
        span=(0, len(hours) - 1),
    )


def agreement_chart(hours: Sequence[tuple[datetime, Any]], floor_ppm: int | None) -> SafeString:
    """The student beside its teacher: how well live answers agreed, and the line below which it is a regression."""
    agreed = [(n, None if f is None else _share(f["shadow_agreement_ppm"])) for n, (_, f) in enumerate(hours)]
    series = [("Agreement with the teacher", agreed)]
    if floor_ppm is not None:
        series.append(("Floor", [(n, floor_ppm / 1e6) for n, share in agreed if share is not None]))
    return line(series, title="Student against teacher", write=pct, write_x=_hour_of(hours), span=(0, len(hours) - 1))


def _hour_of(hours: Sequence[tuple[datetime, Any]]) -> Any:
    def write(at: Any) -> str:
        n = round(float(at))
        return f"{hours[n][0]:%H:00}" if 0 <= n < len(hours) else ""

    return write


def _ms(figures: Any, key: str) -> float | None:
    return None if figures is None or figures[key] is None else figures[key] / MS


def _share(value: int | None) -> float | None:
    return None if value is None else value / 1e6
