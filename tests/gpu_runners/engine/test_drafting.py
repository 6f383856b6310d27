"""Drafts cost time or save it; what is said is what is said without them."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from scipy.stats import chisquare

from gpu_runners.engine.guarded_drafts import fit_draft
from gpu_runners.engine.sequences import TokenSequence
from gpu_runners.engine.sync import generate_all, read_to_end
from gpu_runners.engine.torch_engine import TorchEngine
from gpu_runners.models.causal_base import CausalBase, load_weights
from gpu_runners.models.protocol import (
    AdapterRef,
    Constraint,
    ConstraintKind,
    EngineFailed,
    FinishReason,
    GenerationRequest,
)
from tests.gpu_runners.engine.conftest import PROMPTS
from tests.gpu_runners.engine.hand_drafts import (
    Answer,
    HandDrafts,
    Making,
    answers_of,
    drafting,
    nothing,
    ragged,
    right,
    wrong,
)
from tests.greedy_replay import replay

Ask = Callable[..., GenerationRequest]
SCHEMA = {
    "type": "object",
    "properties": {"size": {"enum": ["small", "large"]}, "word": {"type": "string", "maxLength": 8}},
    "required": ["size", "word"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def drafted(base: CausalBase) -> Iterator[TorchEngine]:
    engine = TorchEngine(base, max_running=8, n_slots=8, chunk=32, drafts=HandDrafts(nothing))
    yield engine
    engine.stop()


def hand(engine: TorchEngine, make: Making) -> HandDrafts:
    """The engine's drafts from now on."""
    drafts = HandDrafts(make)
    engine._scheduler.drafting.drafts = drafts
    return drafts


def numbered(requests: Sequence[GenerationRequest]) -> list[GenerationRequest]:
    return [replace(request, id=str(i)) for i, request in enumerate(requests)]


def same_with_any_draft(engine: TorchEngine, requests: Sequence[GenerationRequest]) -> dict[str, list[Answer]]:
    """Every kind of draft against none; the answers by kind."""
    requests = numbered(requests)
    hand(engine, nothing)
    plain = answers_of(engine, requests)
    known = {request.id: answer.ids for request, answer in zip(requests, plain, strict=True)}
    found = {"none": plain}
    kinds: dict[str, Making] = {
        "right": right(known),
        "short": right(known, 2),
        "wrong": wrong(known),
        "half": wrong(known, after=3),
        "ragged": ragged(known),
    }
    for name, make in kinds.items():
        drafts = hand(engine, make)
        answers = answers_of(engine, [drafting(request) for request in requests])
        for answer, expected in zip(answers, plain, strict=True):
            assert (answer.ids, answer.text, answer.finish) == (expected.ids, expected.text, expected.finish), name
            assert answer.last.logprob == pytest.approx(expected.last.logprob, abs=1e-3)
        assert drafts.settled == by_steps(requests, answers, drafts)
        asyncio.run(engine.forget("none"))  # between two steps: the last one has closed its drafts
        assert drafts.n_open == 0
        found[name] = answers
    return found


def by_steps(
    requests: Sequence[GenerationRequest], answers: Sequence[Answer], drafts: HandDrafts
) -> dict[str, list[list[int]]]:
    """What was settled, if it is all of every answer, and as many pieces as there were steps."""
    for request, answer in zip(requests, answers, strict=True):
        told = drafts.settled[request.id]
        assert [token for kept in told for token in kept] == answer.ids
        assert len(told) == answer.last.counts.steps
        # in each step one token follows the accepted ones, but where an accepted one ends the answer
        assert answer.last.counts.accepted_tokens - (len(answer.ids) - len(told)) in (0, 1)
    return drafts.settled


@pytest.mark.parametrize("kind", ["base", "qwen"])
def test_greedy_answers_are_the_same_with_any_draft(kind: str, ask: Ask, request: pytest.FixtureRequest) -> None:
    engine = TorchEngine(request.getfixturevalue(kind), max_running=4, chunk=16, drafts=HandDrafts(nothing))
    try:
        found = same_with_any_draft(engine, [ask(text) for text in PROMPTS * 2])
    finally:
        engine.stop()
    steps = {name: sum(answer.last.counts.steps for answer in answers) for name, answers in found.items()}
    assert steps["right"] < steps["short"] < steps["none"] / 2
    assert steps["wrong"] == steps["none"]
    assert steps["half"] <= steps["none"] / 3


def test_seeded_answers_are_the_same_with_any_draft(drafted: TorchEngine, ask: Ask) -> None:
    """The numbers of tokens that were not kept are used again: temperature, top_p, top_k and penalties."""
    kinds = (
        {"temperature": 1.3},
        {"temperature": 0.8, "top_p": 0.9},
        {"temperature": 1.1, "top_k": 7, "frequency_penalty": 0.6},
        {"temperature": 1.5, "presence_penalty": 1.2, "top_p": 0.97},
        {"frequency_penalty": 0.8},
    )
    asked = [ask(text, seed=seed, **options) for seed, options in enumerate(kinds) for text in PROMPTS[:3]]
    found = same_with_any_draft(drafted, asked)
    assert sum(answer.last.counts.accepted_tokens for answer in found["right"]) > 200


def test_answers_of_many_adapters_are_the_same_with_any_draft(
    drafted: TorchEngine, ask: Ask, adapters: list[AdapterRef]
) -> None:
    same_with_any_draft(drafted, [ask(text, adapter=one) for text in PROMPTS[:2] for one in (None, *adapters[:6])])
    same_with_any_draft(drafted, [ask(text, adapter=adapters[0]) for text in PROMPTS])  # one adapter in every row


def test_constrained_answers_are_the_same_with_any_draft(drafted: TorchEngine, ask: Ask) -> None:
    json_only = Constraint(kind=ConstraintKind.JSON_SCHEMA, value=json.dumps(SCHEMA))
    choices = Constraint(kind=ConstraintKind.CHOICES, value=json.dumps(["tea", "teapot", "coffee"]))
    asked = [ask(text, constraint=c, max_new_tokens=60) for text in PROMPTS for c in (json_only, choices, None)]
    asked += [replace(request, temperature=1.0, seed=5) for request in asked[:6]]
    for answers in same_with_any_draft(drafted, asked).values():
        assert all(set(json.loads(answer.text)) == {"size", "word"} for answer in answers[:15:3])
        assert all(answer.text in ("tea", "teapot", "coffee") for answer in answers[1:15:3])


def test_stop_texts_inside_a_run_cut_where_they_would_have_cut(drafted: TorchEngine, ask: Ask) -> None:
    hand(drafted, nothing)
    whole = [answers_of(drafted, [ask(text)])[0].text for text in PROMPTS]
    asked = []
    for text, said in zip(PROMPTS, whole, strict=True):
        for begin in (3, len(said) // 2, len(said) - 3):
            asked.append(ask(text, stop=(said[begin : begin + 3], "\x00")))
    found = same_with_any_draft(drafted, asked)
    assert sum(answer.finish is FinishReason.STOP for answer in found["right"]) > 10


def test_a_run_ends_with_the_most_new_tokens_and_with_the_context(drafted: TorchEngine, ask: Ask) -> None:
    asked = [ask(text, max_new_tokens=n) for text in PROMPTS[:2] for n in (1, 2, 3, 5, 17)]
    asked += [ask(prompt=(7,) * (drafted.context - n), max_new_tokens=100) for n in (1, 2, 9)]
    for answers in same_with_any_draft(drafted, asked).values():
        assert all(len(answer.ids) <= request.max_new_tokens for answer, request in zip(answers, asked, strict=True))


def test_logprobs_of_drafted_tokens_are_told(drafted: TorchEngine, ask: Ask) -> None:
    found = same_with_any_draft(drafted, [ask(text, top_logprobs=3) for text in PROMPTS])
    for plain, answer in zip(found["none"], found["right"], strict=True):
        assert [one.token for one in answer.logprobs] == [one.token for one in plain.logprobs]
        for told, expected in zip(answer.logprobs, plain.logprobs, strict=True):
            assert told.logprob == pytest.approx(expected.logprob, abs=1e-3)
            assert [text for text, _ in told.top] == [text for text, _ in expected.top]


def test_the_end_inside_a_run_ends_the_answer(drafted: TorchEngine, ask: Ask, base: CausalBase) -> None:
    """A draft goes on behind the end of sequence; nothing of that is told, and the end counts as accepted."""
    end = base.eos_ids[0]
    hand(drafted, nothing)
    asked = numbered([ask(text, temperature=1.5, seed=seed) for seed in range(30) for text in PROMPTS[:2]])
    plain = answers_of(drafted, asked)
    ended = [(r, a.ids) for r, a in zip(asked, plain, strict=True) if a.ids[-1] == end and 2 < len(a.ids) < 24]
    assert ended, "no seed's answer ends by itself"
    known = {request.id: ids for request, ids in ended}
    hand(drafted, lambda sequence: [*known[sequence.request.id][sequence.n_new :], 5, 6, 7])
    for answer, (_, ids) in zip(answers_of(drafted, [drafting(r) for r, _ in ended]), ended, strict=True):
        assert answer.ids == ids
        assert answer.finish is FinishReason.STOP
        assert (answer.last.counts.steps, answer.last.counts.accepted_tokens) == (2, len(ids) - 1)


def test_samples_with_drafts_follow_the_models_distribution(base: CausalBase, ask: Ask) -> None:
    """Chi-square of 2,000 answers of three tokens, each by its own seed, against their exact probabilities; two of the
    three are chosen behind drafts that are right now and then."""
    asked = ask("costs 3", temperature=1.5, top_k=4, max_new_tokens=3)
    weights = exact_answers(base, asked)
    likely, rng = sorted(weights, key=lambda ids: -weights[ids]), random.Random(0)

    def often_right(sequence: TokenSequence) -> Sequence[int]:
        said = tuple(sequence.tokens[len(sequence.request.prompt) :])
        return rng.choice([ids for ids in likely if ids[: len(said)] == said])[len(said) :]

    engine = TorchEngine(base, max_running=32, max_waiting=2000, drafts=HandDrafts(often_right))
    try:
        answers = answers_of(engine, numbered([replace(drafting(asked), seed=i) for i in range(2000)]))
    finally:
        engine.stop()
    drawn = Counter(tuple(answer.ids) for answer in answers)
    assert drawn.keys() <= weights.keys()
    assert sum(answer.last.counts.accepted_tokens for answer in answers) > 400
    # rare answers share the cell of the rarest frequent one: a cell of their own may expect none at all
    often = [ids for ids in likely if 2000 * weights[ids] > 5]
    rare = weights.keys() - set(often)
    observed = [drawn[ids] for ids in often]
    expected = [2000 * weights[ids] for ids in often]
    observed[-1] += sum(drawn[ids] for ids in rare)
    expected[-1] += 2000 * sum(weights[ids] for ids in rare)
    assert chisquare(observed, expected).pvalue > 1e-3


def exact_answers(base: CausalBase, request: GenerationRequest) -> dict[tuple[int, ...], float]:
    """The probability of each answer of at most `max_new_tokens` tokens under temperature and top_k."""
    model = load_weights(base)
    open_answers: dict[tuple[int, ...], float] = {(): 1.0}
    ended: dict[tuple[int, ...], float] = {}
    for _ in range(request.max_new_tokens):
        going, open_answers = open_answers, {}
        with torch.inference_mode():
            logits = model(torch.tensor([[*request.prompt, *ids] for ids in going])).logits[:, -1].double()
        values, tokens = (logits / request.temperature).topk(request.top_k)
        for (ids, weight), ps, sequence in zip(
            going.items(), values.softmax(-1).tolist(), tokens.tolist(), strict=True
        ):
            for p, token in zip(ps, sequence, strict=True):
                (ended if token in base.eos_ids else open_answers)[(*ids, token)] = weight * p
    return ended | open_answers


def test_a_row_whose_numbers_break_behind_a_draft_fails_alone_and_leaves_a_clean_place(
    base: CausalBase, ask: Ask, adapters: list[AdapterRef]
) -> None:
    engine = TorchEngine(base, max_running=2, drafts=HandDrafts(nothing))
    try:
        long = ask(PROMPTS[4], max_new_tokens=60)
        expected = generate_all(engine, [ask(), long])
        poisoned = engine._shelf.get(adapters[0])
        for _, b in poisoned.pairs.values():
            b.fill_(float("nan"))
        hand(engine, lambda sequence: [1, 2, 3])

        async def main() -> list[object]:
            broken = [drafting(ask(PROMPTS[4], adapter=adapters[0], id=str(i))) for i in range(4)]
            return await asyncio.gather(*[read_to_end(engine, r) for r in broken], return_exceptions=True)

        for outcome in asyncio.run(main()):
            assert isinstance(outcome, EngineFailed)
            assert outcome.code == "nan_logits"
        after = generate_all(engine, [ask(), long])  # the short one reads, under a mask, where the broken one stood
        assert [answer.text for answer in after] == [answer.text for answer in expected]
    finally:
        engine.stop()


def test_a_drafted_token_that_breaks_the_numbers_costs_the_answer_nothing(base: CausalBase, ask: Ask) -> None:
    """Embeddings of a token that the model never says are NaN: a hostile draft feeds it."""
    engine = TorchEngine(base, max_running=2, drafts=HandDrafts(nothing))
    try:
        asked = numbered([ask(text, max_new_tokens=40) for text in PROMPTS])
        plain = answers_of(engine, asked)
        never = base.vocab_size - 1
        assert all(never not in answer.ids for answer in plain)
        engine._runner.model.get_input_embeddings().weight.data[never] = float("nan")
        hand(engine, lambda sequence: [never, never] if sequence.n_new % 2 else [])
        answers = answers_of(engine, [drafting(request) for request in asked])
        assert [answer.ids for answer in answers] == [answer.ids for answer in plain]
    finally:
        engine.stop()


def test_drafts_that_break_end_and_answers_go_on(
    drafted: TorchEngine, ask: Ask, caplog: pytest.LogCaptureFixture
) -> None:
    def breaks(sequence: TokenSequence) -> Sequence[int]:
        raise ValueError("a bad pack")

    expected = generate_all(drafted, [ask()])[0].text
    hand(drafted, breaks)
    assert generate_all(drafted, [drafting(ask())])[0].text == expected
    assert "go on without" in caplog.text


def test_readers_that_leave_close_their_drafts(base: CausalBase, ask: Ask) -> None:
    """While they run, while they wait, and where there was no room."""
    drafts = HandDrafts(lambda sequence: [5, 6])
    engine = TorchEngine(base, max_running=1, max_waiting=1, drafts=drafts)

    async def main() -> None:
        long = engine.generate(drafting(ask(max_new_tokens=400, prompt=(9,) * 30)))
        await anext(long)
        waiting = asyncio.create_task(read_to_end(engine, drafting(ask())))
        await asyncio.sleep(0.05)
        with pytest.raises(Exception, match="waiting"):
            await read_to_end(engine, drafting(ask()))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await long.aclose()  # type: ignore[attr-defined]
        await read_to_end(engine, drafting(ask()))

    try:
        asyncio.run(main())
        generate_all(engine, [ask()])  # a step later
        assert drafts.n_open == 0
    finally:
        engine.stop()


def test_out_of_memory_with_drafts_loses_nothing(base: CausalBase, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = TorchEngine(base, max_running=8, drafts=HandDrafts(nothing))
    try:
        asked = numbered([ask(text, temperature=0.7, seed=3) for text in PROMPTS] + [ask()] * 3)
        plain = answers_of(engine, asked)
        known = {request.id: answer.ids for request, answer in zip(asked, plain, strict=True)}
        hand(engine, right(known, 3))
        forward, steps = engine._runner.forward, iter(range(10**6))

        def small(pools: object, chunks: object, lora: object) -> object:
            if next(steps) > 3 and sum(len(pool.sequences) for pool in pools.by_capacity.values()) > 4:  # type: ignore[attr-defined]
                raise torch.OutOfMemoryError("CUDA out of memory")
            return forward(pools, chunks, lora)  # type: ignore[arg-type]

        monkeypatch.setattr(engine._runner, "forward", small)
        answers = answers_of(engine, [drafting(request) for request in asked])
        assert [answer.ids for answer in answers] == [answer.ids for answer in plain]
        assert engine.counters()["out_of_memory_halvings"] == 1
    finally:
        engine.stop()


def test_counters_and_steps_are_told_by_source(base: CausalBase, ask: Ask) -> None:
    engine = TorchEngine(base, max_running=4, drafts=HandDrafts(nothing))
    try:
        asked = numbered([ask(text) for text in PROMPTS])
        plain = answers_of(engine, asked)
        known = {request.id: answer.ids for request, answer in zip(asked, plain, strict=True)}
        drafts = hand(engine, wrong(known, 6, after=4))
        answers = answers_of(engine, [drafting(request) for request in asked])
        counters = engine.counters()
        drafted = sum(answer.last.counts.drafted_tokens for answer in answers)
        accepted = sum(answer.last.counts.accepted_tokens for answer in answers)
        assert counters["drafted_tokens"] == counters["drafted_tokens_pack"] == drafted
        assert counters["accepted_tokens"] == counters["accepted_tokens_pack"] == accepted
        assert 0 < accepted < drafted
        assert counters["drafted_tokens_model"] == 0
        assert sum(n_drafted for _, n_drafted, _ in drafts.steps) <= drafted  # steps with a prompt's chunk are not told
        assert all(seconds > 0 for _, _, seconds in drafts.steps)
    finally:
        engine.stop()


class Followers:
    """Drafts what followed each token in some answers, until one has no follower."""

    def __init__(self, follower: Mapping[int, int]) -> None:
        self._follower = follower
        self._last = -1

    def advance(self, token: int) -> None:
        self._last = token

    def propose(self, most: int) -> list[int]:
        run, token = list[int](), self._last
        while len(run) < most and token in self._follower:
            token = self._follower[token]
            run.append(token)
        return run


def test_a_replay_without_an_engine_predicts_its_counters(drafted: TorchEngine, ask: Ask) -> None:
    hand(drafted, nothing)
    asked = numbered([ask(text, max_new_tokens=n) for text in PROMPTS for n in (1, 7, 24)])
    answers = [answer.ids for answer in answers_of(drafted, asked)]
    follower = {a: b for ids in answers[::2] for a, b in pairwise(ids)}
    proposers = {request.id: Followers(follower) for request in asked}

    class Replayable(HandDrafts):
        def observe_accepted(self, sequence: TokenSequence, kept: Sequence[int]) -> None:
            HandDrafts.observe_accepted(self, sequence, kept)
            for token in kept:
                proposers[sequence.request.id].advance(token)

    drafts = Replayable(
        lambda sequence: proposers[sequence.request.id].propose(min(9, sequence.limit - len(sequence.tokens) - 1))
    )
    drafted._scheduler.drafting.drafts = drafts
    counts = [answer.last.counts for answer in answers_of(drafted, [drafting(request) for request in asked])]
    for request, ids, one in zip(asked, answers, counts, strict=True):
        told = replay([ids], lambda i: Followers(follower), max_draft=9, limit=request.max_new_tokens)
        expected = (told.n_tokens, told.n_steps, told.n_drafted, told.n_accepted)
        assert (one.completion_tokens, one.steps, one.drafted_tokens, one.accepted_tokens) == expected
    assert 0 < sum(one.accepted_tokens for one in counts) < sum(one.drafted_tokens for one in counts)


def test_a_draft_is_cut_where_it_cannot_come_true(ask: Ask, drafted: TorchEngine) -> None:
    sequence = TokenSequence.__new__(TokenSequence)
    sequence.tokens, sequence.limit, sequence.eos_ids = [1] * 10, 20, frozenset({0})
    for ids, kept in (
        ([5] * 30, 9),  # of the ten that are left the last one follows the draft
        ([5, 6, 0, 7], 3),
        ([5, 300, 7], 1),
        ([-1, 7], 0),
        ([], 0),
    ):
        assert fit_draft(ids, sequence, share=64, vocab_size=256) == ids[:kept]
    assert len(fit_draft([5] * 30, sequence, share=4, vocab_size=256)) == 4
    sequence.limit = 11
    assert fit_draft([5], sequence, share=64, vocab_size=256) == []
