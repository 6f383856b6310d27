"""Teachers' prices on the terminal."""

import pytest

from backend.domain.money.pricing import price_book, teacher_price
from backend.domain.money.teacher_prices import price_json, row_price
from backend.domain.money.vendor_prices import shipped_prices
from gpu_runners.cli.display.prices import price_lines, print_prices

ROWS = [price_json(row_price(row, "vendor")) for row in shipped_prices().rows]


def test_an_estimate_says_its_prices_in_a_line_each_and_then_what_is_doubtful() -> None:
    book = price_json(teacher_price(price_book(), "kolm-grammar-1", None))
    lines = list(
        price_lines({"teacher_price": ROWS[0], "fallback_price": book, "reward_price": book, "warnings": ["old"]})
    )
    assert [line.split()[0] for line in lines] == ["teacher", "fallback", "reward", "warning:"]
    assert str(ROWS[0]["as_of"]) in lines[0]
    assert lines[3] == "warning: old"


def test_an_installation_that_is_older_says_nothing_of_prices() -> None:
    assert list(price_lines({"steps": []})) == []
    assert list(price_lines({"teacher_price": None, "fallback_price": None, "warnings": None})) == []


def test_the_table_has_a_line_for_each_row_and_says_which_are_the_operators(capsys: pytest.CaptureFixture[str]) -> None:
    print_prices([ROWS[0] | {"origin": "operator", "source": "contract 4711"}, *ROWS])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 1 + len(ROWS)
    assert lines[1].rstrip().endswith("the operator: contract 4711")
    assert f"{ROWS[-1]['place']} " in lines[-1]


def test_an_empty_table_says_what_a_spec_may_do(capsys: pytest.CaptureFixture[str]) -> None:
    print_prices([])
    assert "teacher.price" in capsys.readouterr().out
