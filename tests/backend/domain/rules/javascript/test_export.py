import random
from pathlib import Path

import pytest

from backend.domain.rules.closure import compile_rules
from backend.domain.rules.javascript.export import to_javascript
from backend.domain.rules.rule_list import EMPTY
from tests.backend.domain.rules.javascript.node_answers import node_answers
from tests.backend.domain.rules.random_lists import field_list, hanging_list, label_list, random_text


@pytest.mark.parametrize("make", [label_list, field_list, hanging_list])
def test_javascript_answers_every_text_as_python_does(make, tmp_path: Path) -> None:
    rng = random.Random(5)
    lists = [make(rng) for _ in range(30)]
    texts = ["", " ", "^ $ #", *(random_text(rng) for _ in range(300))]
    modules = [to_javascript(rules, name=f"answer{i}") for i, rules in enumerate(lists)]
    for i, module in enumerate(modules):
        (tmp_path / f"list{i}.mjs").write_text(module, "utf-8")
    imports = "\n".join(f'import {{ answer{i} }} from "./list{i}.mjs";' for i in range(len(lists)))
    everyone = ", ".join(f"answer{i}(text)" for i in range(len(lists)))
    theirs = node_answers(f"{imports}\nexport const answer = (text) => [{everyone}];", texts, tmp_path)
    ours = [compile_rules(rules) for rules in lists]
    n_answered = 0
    for text, answers in zip(texts, theirs, strict=True):
        expected = [answer(text) for answer in ours]
        assert answers == expected, repr(text)
        n_answered += sum(answer is not None for answer in expected)
    assert n_answered > 100  # equal silence would prove nothing


def test_an_empty_list_says_nothing(tmp_path: Path) -> None:
    assert node_answers(to_javascript(EMPTY), ["", "hello"], tmp_path) == [None, None]


def test_a_name_that_is_code_is_refused() -> None:
    with pytest.raises(ValueError, match="letters and digits"):
        to_javascript(EMPTY, name="x(){}; export function y")
