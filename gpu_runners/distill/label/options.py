"""The train options of a job: what the seam calls `TrainOptions`, with ranges that this trainer can work with."""

from collections.abc import Mapping
from typing import Any

from backend.domain.jobs.runner_jobs import TrainOptions
from backend.domain.jobs.students import AUTO, Student
from gpu_runners.errors import JobFailed


def read_options(data: Mapping[str, Any]) -> TrainOptions:
    """Raises JobFailed(invalid_options) for unknown or missing keys and for values out of range."""
    try:
        o = TrainOptions.from_json(dict(data))
        fine = (
            1 <= o.rank <= 256
            and 1 <= o.alpha <= 4096
            and 0 <= o.dropout < 1
            and 0 < o.learning_rate < 1
            and 1 <= o.epochs <= 200
            and 1 <= o.batch_size <= 1024
            and 0 <= o.warmup_share <= 1
            and 8 <= o.max_tokens <= 4096
            and o.precision in ("auto", "fp32", "bf16")
            and 0 <= o.validation_share <= 0.5
            and type(o.layers) is int
            and 0 <= o.layers <= 256
            and o.student in (AUTO, *Student)
        )
    except (ValueError, TypeError) as error:
        raise JobFailed(f"The job's train options cannot be read: {error}.", code="invalid_options") from error
    if not fine:
        raise JobFailed(f"The job's train options are out of range: {dict(data)}.", code="invalid_options")
    return o
