"""The replay bench: what it counts of drafters, on answers that can be counted by hand."""

import json

import pytest

from tests.backend.domain.recipes.letters import TEXTS, tokens_of
from tests.bench.recipe_lookup import cursors, timed
from tests.bench.recipe_replay import Arm, Row, arms, everywhere, made, measured, report
from tests.bench.recipe_replay_data import END, Encoder, ReplaySet
from tests.bench.recipe_replay_peers import NgramTable, PromptLookup, SuffixDecoding, has_suffix_decoding

ORDERS = [json.dumps({"city": "Bonn", "size": size, "n": n}) for n in range(8) for size in ("large", "small")]


@pytest.fixture
def orders() -> ReplaySet:
    pairs = [(list(tokens_of(f"to Bonn: {text[-3]}")), list(tokens_of(text))) for text in ORDERS]
    return ReplaySet(name="orders", about="halves", observed=pairs[::2], measured=pairs[1::2], token_texts=TEXTS)


def test_every_arm_is_measured_on_the_same_tokens_and_stays_within_its_coverage(orders: ReplaySet) -> None:
    rows = measured(orders)
    names = ["pack", "pack, 16 KiB", "pack, no copies", "pack, no copies, no shapes", "prompt look-up"]
    assert [row.arm.name for row in rows][:5] == names
    n_tokens = sum(len(answer) for _, answer in orders.measured)
    for row in rows:
        assert row.counts.n_tokens == n_tokens
        assert row.n_right <= row.n_hits <= n_tokens
        assert row.counts.n_accepted <= row.counts.n_drafted
    table = "\n".join(report(orders, rows))
    assert "| pack |" in table
    assert f"{rows[0].counts.n_tokens / rows[0].counts.n_steps:.2f}" in table


def test_asking_everywhere_counts_drafts_and_right_first_tokens() -> None:
    class Says7:
        def propose(self, most: int) -> list[int]:
            return [7]

        def advance(self, token: int) -> None:
            pass

    assert everywhere([[7, 7, 1], [7]], lambda i: Says7()) == (2, 1)


def test_prompt_look_up_proposes_what_followed_the_last_two_tokens_first() -> None:
    drafts = PromptLookup([1, 2, 3, 1, 2, 4])
    drafts.advance(1)
    assert list(drafts.propose(2)) == [2, 3]
    drafts.advance(2)
    assert list(drafts.propose(3)) == [3, 1, 2]
    drafts.advance(9)
    assert list(drafts.propose(3)) == []


def test_an_n_gram_table_drafts_the_commonest_token_where_it_came_often_enough() -> None:
    table = NgramTable([[1, 2, 3]] * 3 + [[1, 2, 4], [5, 6]])
    drafts = table.cursor()
    drafts.advance(1)
    assert list(drafts.propose(4)) == [2, 3]
    drafts.advance(5)
    assert list(drafts.propose(4)) == []  # 5 6 came once


@pytest.mark.skipif(not has_suffix_decoding(), reason="arctic-inference is not in .bench-peers/recipes")
def test_suffix_decoding_drafts_what_an_observed_answer_went_on_with() -> None:
    answer = list(tokens_of(ORDERS[0]))
    drafts = SuffixDecoding([([1], answer)] * 3).proposer([[1]])(0)
    for token in answer[:4]:
        drafts.advance(token)
    assert list(drafts.propose(2)) == answer[4:6]
    drafts.close()


def test_drafters_that_learn_from_what_they_serve_begin_each_pass_anew(orders: ReplaySet) -> None:
    for arm in arms(orders):
        first, again = (everywhere([answer for _, answer in orders.measured], arm.drafters()) for _ in range(2))
        assert first == again


def test_the_trained_tokenizer_gives_texts_back_with_an_end() -> None:
    encoder = Encoder.trained_on([("a prompt", text) for text in ORDERS])
    prompt, answer = encoder.pair("a prompt é", ORDERS[0])
    assert b"".join(encoder.token_texts[token] for token in answer).decode() == ORDERS[0]
    assert b"".join(encoder.token_texts[token] for token in prompt).decode() == "a prompt é"
    assert answer[-1] == END


def test_a_look_up_takes_time(orders: ReplaySet) -> None:
    advance, propose = timed([answer for _, answer in orders.measured], cursors(made(orders), orders), 2)
    assert advance < 1000
    assert propose < 1000


def test_a_row_without_drafts_is_printed(orders: ReplaySet) -> None:
    row = measured(orders)[0]
    nothing = Row(arm=Arm(name="nothing", drafters=lambda: lambda i: PromptLookup([])), counts=row.counts, n_hits=0,
                  n_right=0)  # fmt: skip
    assert "| nothing | 0.0% | 0.0% |" in "\n".join(report(orders, [nothing]))
