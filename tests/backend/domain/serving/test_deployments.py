"""Which artifact, which server, at most how much."""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from backend.domain.money.ledger import Meter, meter_of
from backend.domain.money.pricing import price_book
from backend.domain.serving.deployments import (
    N_BUCKETS,
    Answering,
    ServerLoad,
    StudentKind,
    answering,
    bucket_of,
    in_order,
    mismatch,
    n_answers,
    quantile_us,
    takes_canary,
    token_costs,
    worst_microusd,
    worst_tokens,
)

BOOK = price_book()


def server(key: str, *, running: int = 0, waiting: int = 0, most: int = 8, here: int = 0) -> ServerLoad:
    return ServerLoad(key=key, n_running=running, n_waiting=waiting, max_running=most, n_here=here)


def test_an_adapter_always_meets_the_same_server_and_adapters_spread() -> None:
    servers = [server(f"s{i}") for i in range(4)]
    firsts = [in_order(f"{i:064x}", servers)[0].key for i in range(400)]
    assert firsts == [in_order(f"{i:064x}", servers[::-1])[0].key for i in range(400)]
    assert all(60 < n < 140 for n in Counter(firsts).values())


def test_a_server_that_goes_moves_its_own_adapters_only() -> None:
    servers = [server(f"s{i}") for i in range(4)]
    for i in range(200):
        order = in_order(f"{i:064x}", servers)
        without = in_order(f"{i:064x}", [s for s in servers if s.key != "s2"])
        assert [s.key for s in without] == [s.key for s in order if s.key != "s2"]


def test_a_full_server_is_passed_over_and_of_full_ones_the_least_loaded_is_first() -> None:
    adapter = "a" * 64
    best, second, third = (s.key for s in in_order(adapter, [server(k) for k in "xyz"]))
    full = {best: server(best, running=8, waiting=4), second: server(second, running=8, waiting=1)}
    order = in_order(adapter, [*full.values(), server(third)])
    assert [s.key for s in order] == [third, second, best]
    assert in_order(adapter, [server(best, here=8), server(second)])[0].key == second, "what is not told yet counts"


@given(sticky=st.text(max_size=20), low=st.integers(0, 1_000_000), high=st.integers(0, 1_000_000))
def test_a_greater_share_keeps_those_that_a_smaller_one_had(sticky: str, low: int, high: int) -> None:
    low, high = sorted((low, high))
    assert not takes_canary(sticky, "d", low) or takes_canary(sticky, "d", high)
    assert not takes_canary(sticky, "d", 0)
    assert takes_canary(sticky, "d", 1_000_000)


def test_the_share_is_about_what_was_asked_for() -> None:
    assert 150 < sum(takes_canary(f"u{i}", "dep", 200_000) for i in range(1000)) < 250


def test_what_an_artifact_is_stands_in_its_manifest() -> None:
    manifest = {
        "base": {"id": "b", "sha256": "1" * 64},
        "task_type": "label",
        "members": [{"path": "prompt.json", "size": 77, "sha256": ""}],
    }
    what = answering(manifest)
    assert (what.student, what.n_prompt_bytes, what.base_sha256) == ("causal", 77, "1" * 64)
    spans = [{"path": "extraction.json", "size": 9, "sha256": ""}]
    assert answering(manifest | {"members": []}).student == "label"
    assert answering(manifest | {"task_type": "json", "members": spans}).student == "spans"
    assert answering({}).student is None


CAUSAL = Answering(base_id="b", base_sha256="1" * 64, task_type="json", n_prompt_bytes=300, student=StudentKind.CAUSAL)
SPANS = replace(CAUSAL, base_id="minilm", base_sha256="2" * 64, student=StudentKind.SPANS)


def test_what_cannot_stand_in_is_told_why() -> None:
    assert "text task" in str(mismatch(replace(CAUSAL, task_type="text"), CAUSAL, is_same_form=True))
    other_base = replace(CAUSAL, base_sha256="3" * 64)
    assert "333333333333" in str(mismatch(other_base, CAUSAL, is_same_form=True))


def test_another_student_stands_in_where_the_answers_have_one_form() -> None:
    for canary, primary in ((SPANS, CAUSAL), (CAUSAL, SPANS), (replace(SPANS, base_sha256="4" * 64), SPANS)):
        assert mismatch(canary, primary, is_same_form=True) is None
        assert "another schema" in str(mismatch(canary, primary, is_same_form=False))
    labels = [replace(one, task_type="label") for one in (SPANS, CAUSAL)]
    assert "set of labels" in str(mismatch(*labels, is_same_form=False))
    assert mismatch(CAUSAL, CAUSAL, is_same_form=False) is None, "a new version on the same base may have a field more"


@given(prompt=st.integers(0, 100_000), cached=st.integers(0, 100_000), completion=st.integers(0, 100_000))
def test_the_kinds_of_token_sum_to_the_exact_cost_rounded_once(prompt: int, cached: int, completion: int) -> None:
    cached = min(cached, prompt)
    costs = token_costs(BOOK, prompt=prompt, cached=cached, completion=completion)
    exact = (prompt - cached) * 0.05 + cached * 0.0125 + completion * 0.20
    assert abs(sum(cost.amount_microusd for cost in costs) - exact) <= 0.5 + 1e-6
    assert costs[-1].kind == "completion"
    assert all(abs(c.amount_microusd - float(c.quantity * c.price.usd_per_unit) * 1e6) <= 1 for c in costs)
    assert sum(cost.amount_microusd for cost in costs) <= worst_microusd(BOOK, prompt, completion)


def test_the_worst_case_of_a_request_bounds_what_it_can_use() -> None:
    body = {"messages": [{"role": "user", "content": "x"}] * 2, "max_tokens": 50, "n": 3}
    assert worst_tokens(body, n_body_bytes=1000, n_prompt_bytes=300) == (3 * (1000 + 300 + 64 * 3), 150)
    assert worst_tokens({"prompt": ["x", "y"], "n": 2, "max_tokens": 5}, n_body_bytes=9, n_prompt_bytes=0)[1] == 20
    assert [n_answers({"prompt": prompt}) for prompt in ("xy", [1, 2], [[1], [2]], [])] == [1, 1, 2, 1]
    assert worst_tokens({"prompt": "x"}, n_body_bytes=10, n_prompt_bytes=0)[1] == 1024
    assert worst_tokens({"max_completion_tokens": 7, "max_tokens": True}, n_body_bytes=1, n_prompt_bytes=0)[1] == 7
    assert worst_tokens({"max_tokens": 9}, n_body_bytes=10, n_prompt_bytes=0, writes_tokens=False) == (138, 0)
    response = {"input": [{"role": "user", "content": "x"}] * 2, "max_output_tokens": 6}
    assert worst_tokens(response, n_body_bytes=10, n_prompt_bytes=0) == (10 + 64 * 3, 6)
    assert worst_tokens({"input": "x"}, n_body_bytes=10, n_prompt_bytes=0) == (10 + 64 * 2, 1024)
    assert worst_microusd(BOOK, 0, 0) == 1


def test_serving_is_a_line_of_the_bill() -> None:
    assert {meter_of(sku, "serve") for sku in BOOK.prices if sku.startswith("serving.")} == {Meter.SERVING}


@given(times=st.lists(st.integers(100, 10**9), min_size=1, max_size=60), share=st.floats(0.01, 1))
def test_a_quantile_of_the_histogram_is_right_to_within_a_fifth(times: list[int], share: float) -> None:
    counts = [0] * N_BUCKETS
    for us in times:
        counts[bucket_of(us)] += 1
    wanted = share * len(times)
    true = sorted(times)[max(0, -int(-wanted // 1) - 1)]
    found = quantile_us(counts, share)
    assert found is not None
    assert true * 0.999 <= found <= true * 1.19 + 1
    assert quantile_us([0] * N_BUCKETS, share) is None
