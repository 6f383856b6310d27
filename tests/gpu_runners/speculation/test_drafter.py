"""One request's drafts: order of sources, ends, ids, constraints, and whose tokens were taken."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_runners.models.causal_base import CausalBase, open_causal_base
from gpu_runners.models.constraints import Constraints
from gpu_runners.models.protocol import Constraint, ConstraintKind, DraftKind, SourceCount
from gpu_runners.speculation.controller import Controller
from gpu_runners.speculation.drafter import Drafter
from gpu_runners.speculation.sources import SchemaSource
from gpu_runners.speculation.step_costs import StepCosts
from tests.gpu_runners.speculation.small_sources import Told
from tests.tiny_bases import TINY, tiny_bases  # noqa: F401 (a fixture)

SCHEMA = {
    "type": "object",
    "properties": {"size": {"enum": ["small", "large"]}, "n": {"type": "integer"}, "city": {"type": "string"}},
    "required": ["size", "n", "city"],
}
ANSWER = '{"size": "small", "n": 12, "city": "Paris"}'


class Scripted:
    """Says one thing at one place of the answer."""

    def __init__(self, kind: DraftKind, at: int, run: Sequence[int]) -> None:
        self.kind, self.key = kind, 0
        self._at, self._run, self._n = at, run, 0

    def advance(self, token: int) -> None:
        self._n += 1

    def propose(self, ahead: Sequence[int], most: int) -> Sequence[int]:
        return self._run[:most] if self._n + len(ahead) == self._at else ()


def always(*sources: object, **more: object) -> Drafter:
    controller = Controller(StepCosts(), is_gated=False)
    return Drafter(sources, controller, **({"max_draft": 16, "matcher": None} | more))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def tiny(tiny_bases: Path) -> CausalBase:  # noqa: F811
    return open_causal_base(TINY, base_dir=tiny_bases)


@pytest.fixture(scope="module")
def constraints(tiny: CausalBase) -> Constraints:
    return Constraints(tiny.tokenizer, vocab_size=tiny.vocab_size, eos_ids=tiny.eos_ids)


def ids_of(base: CausalBase, text: str) -> list[int]:
    return [int(i) for i in base.tokenizer(text, add_special_tokens=False)["input_ids"]]


def test_the_first_source_that_has_something_is_followed_by_the_others() -> None:
    drafter = always(Scripted(DraftKind.PACK, 2, [3, 4]), Scripted(DraftKind.SCHEMA, 0, [1, 2]))
    assert drafter.propose(16) == [1, 2, 3, 4]
    assert drafter.observe_accepted([1, 2, 3, 9]) == 3
    assert set(drafter.counts) == {
        SourceCount(kind=DraftKind.SCHEMA, drafted=2, accepted=2),
        SourceCount(kind=DraftKind.PACK, drafted=2, accepted=1),
    }


def test_a_draft_keeps_to_its_room_and_to_the_longest_allowed() -> None:
    run = list(range(1, 60))
    for room, most, expected in ((16, 16, 16), (5, 16, 5), (16, 3, 3), (0, 16, 0), (-1, 16, 0)):
        drafter = always(Told(DraftKind.PACK, run, run=64), max_draft=most)
        assert drafter.propose(room) == run[:expected]


def test_nothing_is_drafted_behind_an_end_nor_outside_the_vocabulary() -> None:
    ended = always(Scripted(DraftKind.PACK, 0, [5, 0, 7]), Scripted(DraftKind.PROMPT, 3, [8]), end_ids=frozenset({0}))
    assert ended.propose(16) == [5, 0]
    for wrong in (-1, 900, 1 << 40):
        assert always(Scripted(DraftKind.PACK, 0, [5, wrong, 7]), n_vocab=900).propose(16) == [5]


def test_counts_are_of_what_the_engine_fed() -> None:
    drafter = always(Told(DraftKind.PACK, [1, 2, 3, 4, 5]))
    assert drafter.propose(16) == [1, 2, 3, 4, 5]
    assert drafter.observe_accepted([1, 2, 3], fed=[1, 2]) == 2
    assert drafter.counts == (SourceCount(kind=DraftKind.PACK, drafted=2, accepted=2),)
    assert drafter.propose(16) == [4, 5]


def test_an_answer_that_ends_inside_its_draft_speaks_not_against_the_source() -> None:
    drafter = always(Told(DraftKind.PACK, [1, 2, 3, 4]))
    drafter.propose(16)
    assert drafter.observe_accepted([1, 2]) == 2  # a stop text came
    assert drafter.controller.rate(DraftKind.PACK) > 0.7


@given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.floats(0, 1), st.integers(0, 1000))
def test_drafts_of_any_quality_count_what_was_fed_and_what_held(answer: list[int], right: float, seed: int) -> None:
    drafter = always(Told(DraftKind.PROMPT, answer, right=right, seed=seed), max_draft=8)
    at, n_drafted, n_accepted = 0, 0, 0
    while at < len(answer):
        draft = drafter.propose(len(answer) - at - 1)
        n = 0
        while n < len(draft) and draft[n] == answer[at + n]:
            n += 1
        assert drafter.observe_accepted(answer[at : at + n + 1]) == n
        at, n_drafted, n_accepted = at + n + 1, n_drafted + len(draft), n_accepted + n
    assert drafter.n_seen == len(answer)
    assert sum(count.drafted for count in drafter.counts) == n_drafted
    assert sum(count.accepted for count in drafter.counts) == n_accepted


def test_what_does_not_pay_is_compared_with_what_comes_and_drafted_once_it_would() -> None:
    controller = Controller(StepCosts())
    for _ in range(9):
        controller.costs.note(1, 0, 0.01)
        controller.costs.note(1, 8, 0.03)
    for _ in range(20):
        controller.note(DraftKind.PROMPT, 8, 0)
    answer = list(range(1, 200))
    drafter = Drafter([Told(DraftKind.PROMPT, answer)], controller, max_draft=16, matcher=None)
    n_plain = 0
    while True:
        controller.begin(1)
        if drafter.propose(100):
            break
        drafter.observe_accepted([answer[n_plain]])
        n_plain += 1
    assert 0 < n_plain < 30
    assert drafter.counts == ()


def test_forced_tokens_come_from_the_schema_and_leave_the_matcher_as_it_was(
    tiny: CausalBase, constraints: Constraints
) -> None:
    matcher = constraints.matcher(Constraint(kind=ConstraintKind.JSON_SCHEMA, value=json.dumps(SCHEMA)))
    untouched = matcher.deep_copy()
    drafter = always(SchemaSource(matcher), matcher=matcher)
    ids = ids_of(tiny, ANSWER)
    at, n_steps = 0, 0
    while at < len(ids):
        before = matcher.deep_copy().compute_ff_tokens()
        draft = drafter.propose(99)
        assert matcher.compute_ff_tokens() == before
        n = 0
        while n < min(len(draft), len(ids) - at) and draft[n] == ids[at + n]:
            n += 1
        kept = ids[at : at + n + 1]
        assert matcher.consume_tokens(kept)
        drafter.observe_accepted(kept)
        at, n_steps = at + len(kept), n_steps + 1
    count = drafter.counts[0]
    assert count.accepted >= 7  # {"size": " and ", "n":  and city
    assert n_steps <= len(ids) - 7
    assert not untouched.is_stopped()
    assert drafter.propose(99) == []


def test_what_the_constraint_refuses_is_cut_off_and_schema_tokens_follow_a_packs_run(
    tiny: CausalBase, constraints: Constraints
) -> None:
    matcher = constraints.matcher(Constraint(kind=ConstraintKind.JSON_SCHEMA, value=json.dumps(SCHEMA)))
    ids = ids_of(tiny, ANSWER)
    pack = Scripted(DraftKind.PACK, 0, ids[:5])
    drafter = always(pack, SchemaSource(matcher), matcher=matcher)
    draft = drafter.propose(99)
    assert draft[: len(ids[:8])] == ids[:8]
    wrong = always(Scripted(DraftKind.PACK, 0, [*ids[:3], ids[-1], 4]), matcher=matcher)
    assert wrong.propose(99) == ids[:3]
    beyond = always(Scripted(DraftKind.PACK, 0, [tiny.vocab_size + 7]), matcher=matcher, n_vocab=tiny.vocab_size)
    assert beyond.propose(99) == []
    assert not matcher.is_error()
