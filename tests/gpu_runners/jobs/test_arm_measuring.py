"""Measuring what drafts: the arms share their prompts, the budget bounds them, and the choice follows the clock."""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_runners.jobs.arm_measuring import NOISE_PPM, SOURCES, Arm, choices, chosen_arm, measure_arms, pace_ppm
from gpu_runners.models.protocol import (
    Counts,
    Delta,
    Drafting,
    DraftKind,
    FinishReason,
    GenerationRequest,
    SourceCount,
)


class TalkingEngine:
    """Far side of the engine's protocol: answers at once with the prompt's number, with drafts in a quarter of the
    steps."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, bool]] = []
        self.on_answer: Callable[[], None] = lambda: None

    @property
    def about(self) -> Mapping[str, Any]:
        return {}

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Delta]:
        drafts = request.drafting is not None
        if request.max_new_tokens > 1:  # not the call that readies an engine
            self.asked.append((request.prompt[0], drafts))
            self.on_answer()
        by_source = (SourceCount(kind=DraftKind.PACK, drafted=9, accepted=6),) if drafts else ()
        counts = Counts(
            completion_tokens=8,
            steps=2 if drafts else 8,
            drafted_tokens=9 if drafts else 0,
            accepted_tokens=6 if drafts else 0,
            by_source=by_source,
        )
        yield Delta(text=str(request.prompt[0]), finish_reason=FinishReason.STOP, counts=counts)

    def counters(self) -> Mapping[str, int]:
        return {}

    async def forget(self, key: str) -> None: ...

    async def close(self) -> None: ...


def two_arms() -> list[Arm]:
    drafting = Drafting(kinds=(DraftKind.PACK,))
    return [Arm(sources=(), drafting=None), Arm(sources=("pack",), drafting=drafting)]


def prompts(n: int) -> list[Callable[[], GenerationRequest]]:
    return [lambda i=i: GenerationRequest(id="x", prompt=(i,), max_new_tokens=9) for i in range(n)]  # type: ignore[misc]


class Ticking:
    """A clock on which an answer takes so long and nothing else takes any time."""

    def __init__(self, *, engine_s: float) -> None:
        self.now, self._engine_s = 0.0, engine_s

    def __call__(self) -> float:
        return self.now

    def pass_time(self) -> None:
        self.now += self._engine_s


def test_all_arms_answer_the_same_prompts_and_take_turns_in_being_first() -> None:
    engine, arms = TalkingEngine(), two_arms()
    measure_arms(engine, arms, prompts(4), budget_s=60)
    assert arms[0].answers == arms[1].answers == ["1", "2", "3"]  # the first is a rehearsal
    assert [drafts for _, drafts in engine.asked] == [False, True, True, False] * 2, "a first turn each"
    told = arms[1].to_json()
    assert (told["n_prompts"], told["n_tokens"], told["n_steps"], told["drafted"], told["accepted"]) == (
        3,
        24,
        6,
        27,
        18,
    )
    assert told["by_source"] == [{"kind": "pack", "drafted": 27, "accepted": 18}]
    assert told["wall_us"] == sum(told["latencies_us"])
    assert arms[0].to_json()["by_source"] == []


def test_a_round_that_would_not_fit_the_budget_is_not_begun() -> None:
    engine, arms, clock = TalkingEngine(), two_arms(), Ticking(engine_s=1.0)
    engine.on_answer = clock.pass_time
    measured = measure_arms(engine, arms, prompts(50), budget_s=9.0, clock=clock)
    assert measured == arms
    assert len(engine.asked) == 2 * 4, "a round takes 2 s: the fifth would end at 10"
    assert len(arms[0].answers) == 3


def test_a_budget_that_is_too_small_for_all_arms_measures_some_on_one_prompt() -> None:
    engine, clock = TalkingEngine(), Ticking(engine_s=2.0)
    engine.on_answer = clock.pass_time
    arms = [Arm(sources=named, drafting=None) for named in choices(SOURCES[:3])]
    measured = measure_arms(engine, arms, prompts(50), budget_s=5.0, clock=clock)
    assert [arm.sources for arm in measured] == [(), ("pack", "schema"), ("pack", "schema", "prompt")]
    assert [arm.answers for arm in measured] == [["0"]] * 3


def test_no_drafts_are_measured_whatever_the_budget() -> None:
    engine, clock = TalkingEngine(), Ticking(engine_s=2.0)
    engine.on_answer = clock.pass_time
    (only,) = measure_arms(engine, two_arms(), prompts(50), budget_s=0.5, clock=clock)
    assert (only.sources, only.answers) == ((), ["0"])
    assert "no time to measure" in chosen_arm([only])[1]


def test_one_prompt_alone_is_measured() -> None:
    arms = two_arms()
    measure_arms(TalkingEngine(), arms, prompts(1), budget_s=60)
    assert arms[1].answers == ["0"]


def test_the_chains_that_are_measured() -> None:
    assert choices([]) == [()]
    assert choices(["prompt"]) == [(), ("prompt",)]
    assert choices(["prompt", "schema"]) == [(), ("schema",), ("prompt",), ("schema", "prompt")]
    assert choices(SOURCES)[-2:] == [("pack", "schema", "prompt"), ("pack", "schema", "prompt", "model")]
    assert ("pack", "model") in choices(SOURCES)
    assert len(choices(SOURCES)) == 10


@given(st.lists(st.sampled_from(SOURCES), unique=True))
def test_nothing_is_measured_twice_and_nothing_that_is_not_allowed(allowed: list[str]) -> None:
    found = choices(allowed)
    assert found[0] == ()
    assert len(set(found)) == len(found)
    assert {name for arm in found for name in arm} == set(allowed)


def timed(*walls_us: int) -> list[Arm]:
    sources: list[tuple[str, ...]] = [(), ("pack",), ("pack", "schema")]
    return [
        Arm(sources=named, drafting=None, latencies_us=[wall]) for named, wall in zip(sources, walls_us, strict=True)
    ]


@pytest.mark.parametrize(
    ("walls_us", "chosen"),
    [
        ((1000, 500, 400), 2),
        ((1000, 500, 490), 1),  # the same within what is noise: the simpler one
        ((1000, 980, 990), 0),
        ((1000, 1500, 1600), 0),
        ((1000, 400, 500), 1),
    ],
)
def test_the_fastest_is_chosen_unless_less_does_as_well(walls_us: tuple[int, ...], chosen: int) -> None:
    assert chosen_arm(timed(*walls_us))[0] == chosen


def test_the_reason_is_told_in_a_sentence() -> None:
    assert (
        chosen_arm(timed(1000, 500, 400))[1]
        == "On 1 held-out prompt pack + schema takes 60 % less time than no drafts."
    )
    assert chosen_arm(timed(1000, 1500, 1500))[1] == "On 1 held-out prompt nothing drafts for less time than it costs."


@given(st.lists(st.integers(1, 10**9), min_size=3, max_size=3))
def test_what_is_chosen_is_never_slower_than_the_best_by_more_than_noise(walls_us: list[int]) -> None:
    arms = timed(*walls_us)
    chosen, _ = chosen_arm(arms)
    assert walls_us[chosen] <= min(walls_us) + walls_us[0] * (NOISE_PPM + 1) / 1e6


def test_one_answer_that_was_disturbed_decides_nothing() -> None:
    plain = Arm(sources=(), drafting=None, latencies_us=[1000, 1000, 1000])
    pack = Arm(sources=("pack",), drafting=None, latencies_us=[500, 90_000, 500])
    assert chosen_arm([plain, pack])[0] == 1
    assert pace_ppm(pack, plain) == 500_000
