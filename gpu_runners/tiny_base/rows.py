"""Batches of one length class: right-padded, so that a causal model needs no attention mask; a curriculum of copying
first, chats more and more."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gpu_runners.tiny_base.chats import Chat, chats

IGNORED = -100
_POOL = 48  # rows that are sorted by length before they become batches


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`ids` with the place where what is learnt begins."""

    ids: list[int]
    learnt_from: int


def batches(tokenizer: Any, *, seed: int, n_steps: int, step_tokens: int, context: int) -> Iterator[list[Row]]:
    """`n_steps` batches of about `step_tokens` tokens, padding included. The share of copying rows falls from 0.2 to 0
    over the first third."""
    rng = random.Random(seed)
    source = chats(seed + 1)
    done, pool = 0, list[Row]()
    while done < n_steps:
        copying = max(0.0, 0.2 * (1 - 3 * done / n_steps))
        while len(pool) < _POOL:
            row = copy_row(rng, len(tokenizer)) if rng.random() < copying else chat_row(tokenizer, next(source))
            if len(row.ids) <= context:
                pool.append(row)
        pool.sort(key=lambda row: len(row.ids))
        start = rng.randrange(len(pool))
        batch = _around(pool, start, step_tokens)
        yield batch
        done += 1
        taken = {id(row) for row in batch}
        pool = [row for row in pool if id(row) not in taken]


def _around(pool: Sequence[Row], start: int, step_tokens: int) -> list[Row]:
    """Neighbours in length, from `start` on (wrapping to the shorter ones at the end), as many as fit."""
    order = [*pool[start:], *reversed(pool[:start])]
    batch: list[Row] = []
    longest = 0
    for row in order:
        longest = max(longest, len(row.ids))
        if batch and longest * (len(batch) + 1) > step_tokens:
            break
        batch.append(row)
    return batch


def chat_row(tokenizer: Any, chat: Chat) -> Row:
    messages = [{"role": "system", "content": chat.system}, {"role": "user", "content": chat.user}]
    head = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    answer = tokenizer(chat.answer, add_special_tokens=False)["input_ids"]
    return Row(ids=[*head, *answer, tokenizer.eos_token_id], learnt_from=len(head))


def copy_row(rng: random.Random, vocab_size: int) -> Row:
    """Random tokens twice; in most, one token stands between all others, as white space does in a text."""
    first = 8  # past the special tokens
    text = [rng.randrange(first, vocab_size) for _ in range(rng.randint(8, 40))]
    if rng.random() < 0.7:
        space = rng.randrange(first, vocab_size)
        text = [token for word in text for token in (word, space)]
    return Row(ids=[*text, *text], learnt_from=len(text) + 1)


def tensors(batch: Sequence[Row], pad: int) -> tuple[Any, Any]:
    """ids and labels, (n, longest) int64; labels are IGNORED before `learnt_from` and after the end."""
    import torch

    longest = max(len(row.ids) for row in batch)
    ids = torch.full((len(batch), longest), pad)
    labels = torch.full((len(batch), longest), IGNORED)
    for i, row in enumerate(batch):
        ids[i, : len(row.ids)] = torch.tensor(row.ids)
        labels[i, row.learnt_from : len(row.ids)] = ids[i, row.learnt_from : len(row.ids)]
    return ids, labels
