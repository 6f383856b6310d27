"""What a reader learns of how the values of a json task come about."""

import pytest

from backend.domain.extraction.learning import learn_plan
from gpu_runners.cli.api.compile_outcome import print_extraction
from tests.backend.domain.extraction.test_elements import ORDERS, order_pairs
from workers.training.extraction import facts_of


def test_the_facts_say_which_values_elements_share_and_the_client_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    facts = facts_of(learn_plan(ORDERS, order_pairs(40, is_shared=True)), is_extraction=True)
    shared = {leaf["path"]: leaf["shared"] for leaf in facts["leaves"]}
    words = "where it is missing that of the element before, or else of the one after"
    assert shared == {"/orders/*/number": words, "/orders/*/item": ""}
    print_extraction({"extraction": facts})
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "/orders/*/number" in line)
    assert line.endswith(f"copied (as is), {words}")
