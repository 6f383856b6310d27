"""The proposer by itself, with a stand-in for vLLM's model runner: what is proposed to whom, and what garbage does.
Against the engine itself: tests/vllm."""

import json
import random
import time
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from workers.teachers.vllm.proposer import MAX_CHARS, MAX_TOKENS, BatchProposer, DraftMatcher, read_drafts

END = 0


class ByteTokenizer:
    """Token ids are bytes + 1; END is the end of a text."""

    eos_token_id = END

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        assert not add_special_tokens
        return [byte + 1 for byte in text.encode()]


def ids(text: str) -> list[int]:
    return ByteTokenizer().encode(text, add_special_tokens=False)


@dataclass
class Runner:
    """As much of vLLM's runner as a proposer sees: rows of tokens, in an order that the engine may change."""

    rows: dict[str, list[int]] = field(default_factory=dict)
    requests: dict[str, Any] = field(default_factory=dict)
    input_batch: Any = field(default_factory=lambda: SimpleNamespace(req_ids=[]))

    def add(self, request_id: str, prompt: str, extra_args: Any) -> None:
        self.rows[request_id] = ids(prompt)
        self.requests[request_id] = SimpleNamespace(
            num_prompt_tokens=len(ids(prompt)), sampling_params=SimpleNamespace(extra_args=extra_args)
        )
        self.input_batch.req_ids.append(request_id)

    def end(self, request_id: str) -> None:
        del self.rows[request_id], self.requests[request_id]
        self.input_batch.req_ids.remove(request_id)

    def step(self, proposer: BatchProposer, sampled: dict[str, list[int]]) -> dict[str, list[int]]:
        order = self.input_batch.req_ids
        for request_id in order:
            self.rows[request_id] += sampled[request_id]
        token_ids = np.full((len(order), 4096), 7, dtype=np.int32)
        for row, request_id in enumerate(order):
            token_ids[row, : len(self.rows[request_id])] = self.rows[request_id]
        n_tokens = np.array([len(self.rows[request_id]) for request_id in order])
        proposals = proposer.propose(self, [sampled[request_id] for request_id in order], n_tokens, token_ids)
        return dict(zip(order, proposals, strict=True))


def drafts(*texts: str) -> dict[str, str]:
    return {"kolm_drafts": json.dumps(texts)}


def proposed(answer_so_far: str, *texts: str, most: int = 8, prompt: str = "Q: ") -> str:
    runner, proposer = Runner(), BatchProposer(ByteTokenizer(), most)
    runner.add("a", prompt, drafts(*texts))
    proposal = runner.step(proposer, {"a": ids(answer_so_far)})["a"]
    return bytes(token - 1 for token in proposal if token != END).decode() + ("$" if END in proposal else "")


def test_an_answer_that_begins_like_a_draft_is_proposed_its_continuation() -> None:
    assert proposed("Y", "Nothing of the kind.", "Your refund is on its way.") == "our "
    assert proposed("Your", "Nothing of the kind.", "Your refund is on its way.") == " refund "


def test_the_end_of_a_draft_is_proposed_as_the_end_of_the_answer() -> None:
    assert proposed("Your", "Yours", most=8) == "s$"


def test_after_a_disagreement_the_answer_is_found_again_in_any_draft() -> None:
    assert proposed("Dear Ann, your refund", "Hello, your refund is late.", "Dear Bob, welcome.") == " is late"


def test_one_agreeing_token_in_the_middle_of_a_draft_is_no_agreement() -> None:
    assert proposed("x", "a sixth") == ""


def test_the_longest_agreement_wins_over_the_better_draft() -> None:
    assert proposed("the red car", "the car is old.", "a red car drove off.") == " drove o"


def test_an_answer_that_was_begun_for_the_teacher_goes_on_where_the_draft_does() -> None:
    assert proposed("u", "Your refund is on its way.", prompt="Q: Your ref") == "nd is on"


def test_a_weak_agreement_proposes_little() -> None:
    assert len(proposed("Y", "Your refund is on its way.", most=64)) == 4


def brute_force(texts: list[list[int]], written: list[int]) -> tuple[int, set[tuple[int, ...]]]:
    """The longest agreement by comparing every place backwards, and what may follow it."""
    best, follow = 0, set()
    for text in texts:
        for place in range(len(text)):
            n = 0
            while n < min(place, len(written)) and text[place - 1 - n] == written[-1 - n]:
                n += 1
            n += n == place == len(written)  # both begin here
            if n > best:
                best, follow = n, set()
            if n == best:
                follow.add(tuple(text[place:]))
    return best, follow


def test_agreements_are_those_of_a_search_by_hand() -> None:
    rng = random.Random(4)
    n_proposed = 0
    for _ in range(300):
        texts = [[rng.randrange(1, 4) for _ in range(rng.randrange(1, 12))] for _ in range(rng.randrange(1, 4))]
        matcher = DraftMatcher(texts, eos=END)
        matcher.begin()
        written: list[int] = []
        for _ in range(10):
            written.append(rng.randrange(1, 4))
            matcher.advance(written[-1])
            best, follow = brute_force([[*text, END] for text in texts], written)
            got = matcher.propose(5)
            assert bool(got) == (best >= 2)
            if got:
                n_proposed += 1
                assert any(list(rest[: len(got)]) == got for rest in follow)
                assert len(got) <= 2 * best
    assert n_proposed > 500


def test_requests_in_one_batch_are_never_proposed_each_others_drafts() -> None:
    """Tenant a's drafts are written in capitals, tenant b's in small letters; both answer the same mixture, rows change
    places, requests end and begin."""
    rng = random.Random(7)
    runner, proposer = Runner(), BatchProposer(ByteTokenizer(), 8)
    n_proposed, n_made = 0, 0
    for _ in range(3000):
        while len(runner.rows) < 6:
            alphabet = "ABC" if n_made % 2 else "abc"
            texts = ["".join(rng.choices(alphabet, k=12)) for _ in range(3)]
            runner.add(f"{alphabet}-{n_made}", "?", drafts(*texts) if n_made % 3 else None)
            n_made += 1
        if rng.random() < 0.2:
            runner.end(rng.choice(list(runner.rows)))
        rng.shuffle(runner.input_batch.req_ids)
        sampled = {request_id: rng.choices(ids("ABCabc"), k=rng.randrange(3)) for request_id in runner.rows}
        for request_id, proposal in runner.step(proposer, sampled).items():
            own = {*ids(request_id[:3]), END}
            assert set(proposal) <= own
            has_drafts = int(request_id.partition("-")[2]) % 3 != 0
            assert has_drafts or not proposal
            n_proposed += bool(proposal)
    assert n_proposed > 500
    assert len(proposer._matchers) <= 6


DEEP = "[" * 50_000
HOSTILE: list[Any] = [
    None,
    "kolm_drafts",
    {},
    {"kolm_drafts": None},
    {"kolm_drafts": 7},
    {"kolm_drafts": ["a list, not its JSON"]},
    {"kolm_drafts": ""},
    {"kolm_drafts": "not JSON"},
    {"kolm_drafts": '{"0": "an object"}'},
    {"kolm_drafts": '["one", 2]'},
    {"kolm_drafts": '[["nested"]]'},
    {"kolm_drafts": "NaN"},
    {"kolm_drafts": DEEP},
    {"kolm_drafts": '["\\ud800"]'},
    {"kolm_drafts": json.dumps(["x" * MAX_CHARS])},
]


@pytest.mark.parametrize("extra_args", HOSTILE, ids=range(len(HOSTILE)))
def test_garbage_proposes_nothing(extra_args: Any) -> None:
    assert read_drafts(extra_args) == ()
    runner, proposer = Runner(), BatchProposer(ByteTokenizer(), 8)
    runner.add("a", "Q", extra_args)
    assert runner.step(proposer, {"a": ids("x")}) == {"a": []}
    assert runner.step(proposer, {"a": ids("xx")}) == {"a": []}


def test_a_request_with_too_much_is_cut_and_stays_fast() -> None:
    texts = [chr(97 + i % 26) * 900 for i in range(60)]
    runner, proposer = Runner(), BatchProposer(ByteTokenizer(), 8)
    runner.add("a", "Q", drafts(*texts))
    runner.step(proposer, {"a": ids("a")})
    matcher = proposer._matchers["a"]
    assert matcher is not None
    assert len(matcher._tokens) <= MAX_TOKENS + 1
    started = time.process_time()
    for _ in range(200):
        runner.step(proposer, {"a": ids("ab")})
    assert (time.process_time() - started) / 200 < 0.005
