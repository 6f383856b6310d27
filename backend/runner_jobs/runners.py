"""The runners as they report themselves with their claims. A report is half trusted, and kept for a day."""

import logging
from datetime import timedelta
from typing import Any

from django.utils import timezone

from backend.domain.jobs.base_checks import read_report
from backend.runner_jobs.models import Runner

log = logging.getLogger("kolm.runner_jobs")

KEEP = timedelta(days=1)


def note_runner(name: str, report: dict[str, Any]) -> None:
    """Keep what a runner says of itself. One that cannot be read, as of a later release, is left out: it must not cost
    the runner its claims."""
    try:
        known = read_report(report)
    except (ValueError, TypeError) as error:
        log.warning("the report of the runner %s cannot be read: %s", name, error)
        return
    now = timezone.now()
    Runner.objects.update_or_create(name=name, defaults={"report": known.to_json(), "seen_at": now})
    Runner.objects.filter(seen_at__lt=now - KEEP).delete()
