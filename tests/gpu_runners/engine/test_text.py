"""Text as it comes: whole characters, and stops found wherever tokens end."""

import asyncio
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_runners.engine.sync import generate_all
from gpu_runners.engine.text import Detokenizer, StopStrings
from gpu_runners.engine.torch_engine import TorchEngine
from gpu_runners.models.causal_base import CausalBase
from gpu_runners.models.protocol import Delta, FinishReason, GenerationRequest

Ask = Callable[..., GenerationRequest]


def pieces(base: CausalBase, ids: list[int]) -> list[str]:
    words = Detokenizer(base.tokenizer)
    return [words.push(token) for token in ids] + [words.flush()]


@pytest.mark.parametrize("text", ["plain words", "漢字 and é", "🎉🎉 party 👩‍👩‍👧", " leading", "a\n\n  b", ""])
def test_pieces_add_up_to_the_text_and_hold_whole_characters(base: CausalBase, text: str) -> None:
    ids = base.tokenizer(text, add_special_tokens=False)["input_ids"]
    out = pieces(base, ids)
    assert "".join(out) == text
    assert not any("\ufffd" in piece for piece in out)


def test_bytes_that_are_no_character_come_at_last(base: CausalBase) -> None:
    one = base.tokenizer("漢", add_special_tokens=False)["input_ids"][0]
    broken = "".join(pieces(base, [one] * 40))
    assert broken == base.tokenizer.decode([one] * 40)
    assert "".join(pieces(base, [one])) == base.tokenizer.decode([one])


@given(
    st.text("abc", max_size=40),
    st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=3),
    st.lists(st.integers(1, 3), min_size=1, max_size=40),
)
def test_what_is_told_is_the_text_before_the_first_stop(text: str, stops: list[str], sizes: list[int]) -> None:
    """However the text is cut into pieces: against str.find on the part that had come by then."""
    watcher, told, at, stopped = StopStrings(stops), "", 0, False
    for size in sizes * 40:
        if at >= len(text) or stopped:
            break
        piece, stopped = watcher.push(text[at : at + size])
        told, at = told + piece, at + size
    told += watcher.flush()
    seen = text[:at]
    found = [seen.find(stop) for stop in stops if stop in seen]
    assert stopped == bool(found)
    assert told == (seen[: min(found)] if found else seen)


def test_a_stop_ends_the_answer_before_itself(engine: TorchEngine, ask: Ask) -> None:
    request = ask(temperature=1.0, seed=5, max_new_tokens=40)
    free = generate_all(engine, [request])[0].text
    for width in (1, 3, 7):
        stop = free[9 : 9 + width]
        cut = generate_all(engine, [ask(temperature=1.0, seed=5, max_new_tokens=40, stop=("\0", stop))])[0]
        assert cut.text == free[: free.index(stop)]
        assert cut.finish_reason is FinishReason.STOP


def test_the_stream_adds_up_to_the_answer(engine: TorchEngine, ask: Ask) -> None:
    async def read(request: GenerationRequest) -> list[Delta]:
        return [delta async for delta in engine.generate(request)]

    for seed in range(3):
        request = ask(temperature=1.3, seed=seed, max_new_tokens=40)
        deltas = asyncio.run(read(request))
        whole = generate_all(engine, [request])[0]
        ids = [token for delta in deltas for token in delta.token_ids]
        assert "".join(delta.text for delta in deltas) == whole.text
        assert len(ids) == deltas[-1].counts.completion_tokens == whole.counts.completion_tokens
        assert whole.text == engine.base.tokenizer.decode(ids, skip_special_tokens=True)
        assert [delta.finish_reason is not None for delta in deltas] == [False] * (len(deltas) - 1) + [True]


@given(data=st.data())
def test_a_run_says_what_its_tokens_say_one_by_one(base: CausalBase, data: st.DataObject) -> None:
    """Runs that end inside a character, and ids that are no character at all."""
    text = data.draw(st.text(max_size=12)) + "漢字🎉"
    ids = [int(i) for i in base.tokenizer(text, add_special_tokens=False)["input_ids"]]
    for at in data.draw(st.lists(st.integers(0, len(ids)), max_size=3)):
        ids.insert(at, data.draw(st.integers(0, base.vocab_size - 6)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(ids)), max_size=4)))
    words = Detokenizer(base.tokenizer)
    told = [words.push_run(ids[begin:end]) for begin, end in pairwise([0, *cuts, len(ids)]) if begin < end]
    assert "".join([*told, words.flush()]) == "".join(pieces(base, ids))
