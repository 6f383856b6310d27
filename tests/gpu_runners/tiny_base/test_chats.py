"""The generated tasks and the tokenizer that is trained on them. The base itself: test_train."""

import json
from itertools import islice
from typing import Any

import pytest

from gpu_runners.tiny_base.chats import answer_text, chats, extraction, pairs
from gpu_runners.tiny_base.rows import IGNORED, batches, chat_row, copy_row, tensors
from gpu_runners.tiny_base.tokens import VOCABULARY, train_tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return train_tokenizer(_texts(), context=256)


def _texts() -> list[str]:
    return [text for chat in islice(chats(1), 300) for text in (chat.system, chat.user, chat.answer)]


def test_the_same_seed_gives_the_same_chats() -> None:
    assert list(islice(chats(5), 20)) == list(islice(chats(5), 20)) != list(islice(chats(6), 20))


def test_every_value_of_an_extraction_stands_in_its_input() -> None:
    import random

    rng = random.Random(3)
    for maker in (extraction, pairs):
        for _ in range(100):
            chat = maker(rng)
            answer = json.loads(chat.answer)
            assert chat.answer == answer_text(answer)
            assert _in_order(list(answer), chat.system)
            spans = {k: v for k, v in answer.items() if k not in ("intent", "action", "topic", "kind")}
            missing = [v for v in spans.values() if v is not None and str(v) not in chat.user]
            assert [v for v in missing if str(v).lower() not in chat.user.lower()] == []


def _in_order(names: list[str], system: str) -> bool:
    """Whether an answer's fields stand in the order in which the system message has them."""
    told = system.rpartition(": ")[2].split(", ") if "fields: " in system else None
    order = told or list(json.loads(system[system.index("{") :])["properties"])
    return names == [name for name in order if name in names]


def test_the_same_texts_give_the_same_tokenizer(tokenizer: Any) -> None:
    again = train_tokenizer(_texts(), context=256)
    assert again.backend_tokenizer.to_str() == tokenizer.backend_tokenizer.to_str()
    assert len(again) <= VOCABULARY


@pytest.mark.parametrize(
    "text", ['{"a": "b c", "n": 12}', "naïve 漢字 🙂\n\tend ", "Zoë's <|end|", 'x", "y": {"z": [1]}']
)
def test_any_text_comes_back_from_its_tokens(tokenizer: Any, text: str) -> None:
    assert tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) == text


def test_a_word_is_the_same_tokens_in_the_input_and_in_the_answer(tokenizer: Any) -> None:
    span = tokenizer.tokenize("Brynd Souxjyth")
    said, answered = (
        tokenizer.tokenize("for Brynd Souxjyth, 12 pieces"),
        tokenizer.tokenize('{"name": "Brynd Souxjyth"}'),
    )
    for tokens in (said, answered):
        assert any(tokens[i : i + len(span)] == span for i in range(len(tokens)))
    assert [t for t in tokenizer.tokenize("3120") if t != "Ġ"] == ["3", "1", "2", "0"]


def test_what_is_learnt_is_the_answer_and_its_end(tokenizer: Any) -> None:
    row = chat_row(tokenizer, next(chats(2)))
    ids, labels = tensors([row, chat_row(tokenizer, next(chats(9)))], tokenizer.pad_token_id)
    learnt = [i for i in labels[0].tolist() if i != IGNORED]
    assert learnt == row.ids[row.learnt_from :]
    assert learnt[-1] == tokenizer.eos_token_id
    assert tokenizer.decode(row.ids[: row.learnt_from]).endswith("<|assistant|>")
    assert ids.shape == labels.shape


def test_a_copying_row_learns_its_second_half() -> None:
    import random

    row = copy_row(random.Random(1), 300)
    half = len(row.ids) // 2
    assert row.ids[:half] == row.ids[half:]
    assert row.learnt_from == half + 1


def test_batches_keep_to_their_size_and_the_context(tokenizer: Any) -> None:
    made = list(batches(tokenizer, seed=1, n_steps=30, step_tokens=600, context=200))
    assert len(made) == 30
    assert all(len(row.ids) <= 200 for batch in made for row in batch)
    assert all(len(batch) == 1 or len(batch) * max(len(row.ids) for row in batch) <= 600 for batch in made)


def test_the_chat_template_takes_turns_tools_and_no_system_message(tokenizer: Any) -> None:
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    assert text == "<|user|>a<|end|><|assistant|>b<|end|><|user|>c<|end|><|assistant|>"
    tools = [{"type": "function", "function": {"name": "look"}}]
    assert '"look"' in tokenizer.apply_chat_template(turns, tools=tools, tokenize=False)
    with pytest.raises(Exception, match="system message comes first"):
        tokenizer.apply_chat_template([*turns, {"role": "system", "content": "late"}], tokenize=False)
