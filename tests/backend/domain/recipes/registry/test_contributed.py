"""What a task's answers have of structure."""

import json
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from backend.domain.recipes.registry import contributed
from backend.domain.recipes.registry.contributed import structures_of
from backend.domain.recipes.registry.structural import structural


def runs(answers: list[str]) -> dict[str, str]:
    return {one.shape: one.run for one in structures_of(answers)}


def test_what_all_answers_of_a_task_go_on_with_is_found():
    found = runs([json.dumps({"city": f"town {n}", "total": n}) for n in range(10, 20)])
    assert found["json d1 colon #0 | { STR"] == ': "'
    assert found["json d1 after #0 | STR : WS STR"] == ', "total": '
    assert found["json d1 value #0 | { STR :"] == ' "'


def test_what_was_seen_five_times_is_not():
    assert structures_of([json.dumps({"city": f"town {n}"}) for n in range(5)]) == []
    assert structures_of([json.dumps({"city": f"town {n}"}) for n in range(6)]) != []


@given(
    st.lists(
        st.text(max_size=30) | st.dictionaries(st.text(max_size=5), st.text(max_size=5)).map(json.dumps), max_size=6
    )
)
def test_whatever_answers_say_their_structures_are_structure(answers):
    for one in structures_of(answers * 6):
        assert structural(one.shape, one.run) == one


def test_answers_without_end_are_read_to_a_bound(monkeypatch):
    monkeypatch.setattr(contributed, "MAX_READ_BYTES", 10_000)
    endless = (json.dumps({"note": "x" * 500, "n": n}) for n in count())
    assert structures_of(endless) != []
    assert next(endless).endswith(" 20}"), "nineteen were read, and the one too many"
    assert structures_of(["{" * 10_001]) == []
