"""Limits that the web process states without importing what they belong to."""

from backend.domain.selection.linkage import clustering
from backend.selections import receiving, submission


def test_the_limits_of_the_service_are_those_of_the_domain() -> None:
    assert submission.MAX_COMPLETE_ROWS == clustering.MAX_ROWS_COMPLETE
    assert receiving.MAX_ROWS == clustering.MAX_ROWS
