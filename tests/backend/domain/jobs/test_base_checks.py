"""What a runner says of a base is read as a half-trusted process's word."""

from typing import Any

import pytest

from backend.domain.jobs.base_checks import CheckBaseResult, check_base_result
from backend.domain.jobs.result_checks import BadResult

WHOLE = {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14}


def test_the_numbers_of_a_config_come_through_and_a_runner_of_before_has_none() -> None:
    result = CheckBaseResult(n_parameters=5, config=WHOLE)
    assert check_base_result(result.to_json()) == result
    older = {name: value for name, value in result.to_json().items() if name != "config"}
    assert check_base_result(older).config == {}


@pytest.mark.parametrize(
    "config",
    [
        {"hidden_size": 0},
        {"hidden_size": -1},
        {"hidden_size": True},
        {"hidden_size": "896"},
        {"hidden_size": 1 << 40},
        {"hidden_size": None},
        {"x" * 300: 1},
        {str(i): 1 for i in range(99)},
        [1],
        "config",
    ],
)
def test_a_config_that_is_no_small_object_of_counts_is_refused(config: Any) -> None:
    """A division by 0 or a number without an end would be met where lines are written, in the web process."""
    with pytest.raises(BadResult):
        check_base_result(CheckBaseResult().to_json() | {"config": config})
