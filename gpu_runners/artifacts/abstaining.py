"""The answers that a label task's artifact is unsure of: their confidence is below the threshold in its
calibration.json. A rule's answer is never unsure. No model is needed to know it."""

import json
from collections.abc import Mapping
from typing import Any

from gpu_runners.errors import JobFailed

PPM = 1_000_000


def abstain_ppm_of(members: Mapping[str, bytes]) -> int | None:
    """The confidence below which a verified artifact is unsure; None where it never is. Raises
    JobFailed(invalid_artifact)."""
    try:
        calibration = json.loads(members.get("calibration.json", b"{}"))
    except ValueError:
        calibration = {}
    value = calibration.get("abstain_ppm") if isinstance(calibration, dict) else None
    if value is None:
        return None
    if type(value) is not int or not 0 <= value <= PPM:
        raise JobFailed(
            "calibration.json of the artifact has an abstain_ppm that is no share.", code="invalid_artifact"
        )
    return value


def with_doubts(rows: list[dict[str, Any]], abstain_ppm: int | None) -> list[dict[str, Any]]:
    """The rows of a label task with `is_unsure` where it abstains."""
    if abstain_ppm is None:
        return rows
    return [row | {"is_unsure": "rule" not in row and round(row["confidence"] * PPM) < abstain_ppm} for row in rows]
