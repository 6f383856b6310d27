"""Every option that docs/distilling.md shows is one of a spec, and every value that it shows for one is taken."""

import re
from pathlib import Path
from typing import Any

import pytest

from backend.domain.spec.parsing import parse_spec
from backend.domain.spec.training import CausalTrain

PAGE = (Path(__file__).parents[4] / "docs" / "distilling.md").read_text()
ROWS = re.findall(r"^\| (`[^|]+) \|", PAGE.split("## Options")[1].split("`batching`:")[0], re.MULTILINE)
OPTIONS = [option for row in ROWS for option in re.findall(r"`(\w+)`", row)]
LAYOUTS = re.findall(r"^\| `(\w+)` \|", PAGE.split("`batching`:")[1].split("## ")[0], re.MULTILINE)
VALUES = [("batching", layout) for layout in LAYOUTS] + [
    ("attention", "flash_attention_2"),
    ("kernels", "liger"),
    ("optimizer", "paged_adamw_8bit"),
    ("precision", "bf16"),
    ("variant", "qlora"),
]


def test_every_option_of_the_page_is_an_option_of_a_spec() -> None:
    assert len(OPTIONS) > 10
    assert set(OPTIONS) - set(CausalTrain.model_fields) == set()


def test_the_page_leaves_no_option_out() -> None:
    assert set(CausalTrain.model_fields) - set(OPTIONS) - {"base", "warmup_share"} == set()


@pytest.mark.parametrize(("option", "value"), VALUES)
def test_a_value_that_the_page_names_reaches_the_runner(option: str, value: Any) -> None:
    spec = parse_spec(
        {
            "name": "notes",
            "task": "Say what the note is about.",
            "output": {"type": "text"},
            "examples": {"upload": "upl_01ktfz2x8e4s1c9w0m5q7r3vbd"},
            "teacher": {"provider": "grammar", "model": "kolm-grammar-1"},
            "train": {"causal": {option: value}},
        }
    )
    assert getattr(spec.train.causal.options(), option) == value
