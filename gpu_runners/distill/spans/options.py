"""The options of a job: what the seam calls `SpanOptions`, with ranges that this trainer can work with."""

from collections.abc import Mapping
from typing import Any

from backend.domain.jobs.span_jobs import SpanOptions
from gpu_runners.errors import JobFailed


def read_options(data: Mapping[str, Any]) -> SpanOptions:
    """Raises JobFailed(invalid_options) for unknown or missing keys and for values out of range."""
    try:
        o = SpanOptions.from_json(dict(data))
        fine = (
            1 <= o.rank <= 256
            and 1 <= o.alpha <= 4096
            and 0 <= o.dropout < 1
            and 0 < o.learning_rate < 1
            and 1 <= o.epochs <= 200
            and 1 <= o.batch_size <= 1024
            and 0 <= o.warmup_share <= 1
            and 16 <= o.max_tokens <= 8192
            and o.precision in ("auto", "fp32", "bf16")
            and 0 <= o.validation_share <= 0.5
            and 0 <= o.swap_share <= 1
        )
    except (ValueError, TypeError) as error:
        raise JobFailed(f"The job's train options cannot be read: {error}.", code="invalid_options") from error
    if not fine:
        raise JobFailed(f"The job's train options are out of range: {dict(data)}.", code="invalid_options")
    return o
