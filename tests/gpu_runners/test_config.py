"""The settings of bases: whether a hub is asked is the operator's choice, and a wrong value is said at the start."""

from pathlib import Path

import pytest

from gpu_runners.config import BadSetting, hub_config, read_config

RUNNER = {"KOLM_API_URL": "http://127.0.0.1:8000", "KOLM_RUNNER_TOKEN": "t"}


@pytest.mark.parametrize(
    ("value", "is_offline"), [(None, False), ("", False), ("0", False), ("no", False), ("1", True), ("TRUE", True)]
)
def test_a_hub_is_asked_unless_the_operator_forbids_it(value: str | None, is_offline: bool) -> None:
    environ = {} if value is None else {"HF_HUB_OFFLINE": value}
    assert hub_config(environ).is_offline is is_offline


def test_empty_variables_are_those_that_are_not_set() -> None:
    """As compose files write them."""
    names = ("HF_ENDPOINT", "HF_TOKEN", "KOLM_BASE_CACHE", "KOLM_BASE_CACHE_BYTES")
    assert hub_config(dict.fromkeys(names, "")) == hub_config({})


def test_the_cache_lies_where_it_is_told_to() -> None:
    config = hub_config({"KOLM_BASE_CACHE": "/data/bases", "KOLM_BASE_CACHE_BYTES": "2e11"})
    assert (config.cache, config.cache_bytes) == (Path("/data/bases"), 200_000_000_000)


def test_a_limit_that_is_no_number_ends_the_runner_at_its_start() -> None:
    with pytest.raises(BadSetting, match="KOLM_BASE_CACHE_BYTES"):
        read_config(RUNNER | {"KOLM_BASE_CACHE_BYTES": "much"})
