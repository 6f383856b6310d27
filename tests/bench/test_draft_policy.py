"""The policy benchmark on made-up vectors: its worlds are what they say, and ours is above what nobody calibrated."""

from pathlib import Path

import numpy as np
import pytest

from tests.bench.draft_policy import rows_of, streams_of
from tests.bench.draft_policy_play import SCENARIOS, Played, Shelf, Taken, play, whole_cost
from tests.bench.draft_policy_rules import Clairvoyant, Ours, Threshold, Unverified
from tests.bench.draft_policy_streams import N_CANDIDATES, SENSITIVITY, SPECIFICITY, Stream, draw_streams
from tests.bench.draft_policy_tables import exact_interval, print_goals, print_tables
from tests.bench.draft_policy_texts import DOMAINS, Family, Texts, parts_of


@pytest.fixture(scope="module")
def streams() -> list[Stream]:
    """Six of 120 slices, over two families of eight intents: unit rows around unit centres, as far apart as MiniLM
    puts sentences of one intent."""
    rng = np.random.default_rng(3)

    def unit(rows: np.ndarray) -> np.ndarray:
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)

    def family(name: str) -> Family:
        centres = unit(rng.normal(size=(8, 48)))
        return Family(name=name, intents=tuple(unit(centre + 0.13 * rng.normal(size=(60, 48))) for centre in centres))

    texts = Texts(families=(family("a"), family("b")), outside=unit(rng.normal(size=(100, 48))))
    return draw_streams(texts, (0, 1), 6, seed=4, n_slices=120)


def net(played: list[Played], at: int) -> float:
    scenario = SCENARIOS[at]
    return float(np.mean([p.saved(scenario).mean() for p in played])) / whole_cost(scenario)


@pytest.mark.parametrize("at", [0, 2])
def test_ours_is_above_the_thresholds_that_peers_ship_and_below_the_clairvoyant(streams: list[Stream], at: int) -> None:
    ours = [play(stream, Ours(SCENARIOS[at], i)) for i, stream in enumerate(streams)]
    for distance in (0.1, 0.2, 0.4):
        assert net(ours, at) > net([play(stream, Threshold(distance)) for stream in streams], at)
    assert net(ours, at) < net([play(stream, Clairvoyant(SCENARIOS[at])) for stream in streams], at)


def test_what_is_not_verified_is_often_bad_and_what_we_accept_seldom(streams: list[Stream]) -> None:
    def bad(played: list[Played]) -> float:
        return sum(sum(p.n_bad) for p in played) / sum(sum(p.n_taken) for p in played)

    assert bad([play(stream, Unverified(0.4)) for stream in streams]) > 0.1
    assert bad([play(stream, Ours(SCENARIOS[0], i)) for i, stream in enumerate(streams)]) < 0.04


def test_nothing_reused_costs_what_all_fresh_costs(streams: list[Stream]) -> None:
    played = play(streams[0], lambda stream, shelf: Taken())
    assert all((played.saved(scenario) == 0).all() for scenario in SCENARIOS)


def test_a_slice_finds_earlier_slices_only_and_at_most_the_drafts_that_were_not_kept(streams: list[Stream]) -> None:
    shelves: list[Shelf] = []

    def looking(stream: Stream, shelf: Shelf) -> Taken:
        shelves.append(shelf)
        return Taken(
            drafts=tuple((s, place) for s, places in zip(shelf.sources, shelf.drafts, strict=True) for place in places)
        )

    play(streams[0], looking)
    assert shelves[0].sources == ()
    for shelf in shelves:
        assert all(source < shelf.slice for source in shelf.sources)
        assert list(shelf.sources) == sorted(shelf.sources, key=lambda s: streams[0].distances[shelf.slice, s])
        assert all(0 < len(places) <= 8 for places in shelf.drafts)


def test_the_judge_errs_as_often_as_it_is_said_to(streams: list[Stream]) -> None:
    right = np.concatenate([stream.is_right.ravel() for stream in streams])
    said = np.concatenate([stream.says_yes.ravel() for stream in streams])
    assert said[right].mean() == pytest.approx(SENSITIVITY, abs=0.005)
    assert said[~right].mean() == pytest.approx(1 - SPECIFICITY, abs=0.005)


def test_the_prices_are_the_break_evens_of_the_design() -> None:
    found = [(s.overhead / N_CANDIDATES + s.verify) / s.fresh for s in SCENARIOS]
    assert found == pytest.approx([0.231, 0.210, 0.418, 0.279], abs=0.0006)


def test_the_tables_hold_every_policy_and_the_goals_are_told(
    streams: list[Stream], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = rows_of(streams[:2], thresholds=(0.1, 0.2, 0.4, 0.6))
    print_tables(rows, streams[:2])
    print_goals(rows)
    printed = capsys.readouterr().out
    for name in (
        "unverified, d <= 0.4",
        "vCache-style, global",
        "(GPTCache)",
        "in hindsight",
        "**ours**",
        "clairvoyant",
    ):
        assert name in printed
    assert printed.count("met") + printed.count("MISSED") >= len(SCENARIOS)


def test_a_set_without_its_file_is_left_out_with_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KOLM_LABEL_DATA", str(tmp_path))
    texts = Texts(families=(), outside=np.zeros((1, 4), dtype=np.float32))
    assert list(streams_of(texts, ["hwu64"], 1)) == []
    assert "hwu64.jsonl" in capsys.readouterr().err


def test_parts_are_families_of_intents_that_are_near_each_other() -> None:
    near_to = np.repeat(np.eye(3, dtype=np.float32), [2, 1, 3], axis=0)  # six intents about three centres
    parts = parts_of("x", [np.stack([row, row]) for row in near_to], 3)
    assert sorted(len(part.intents) for part in parts) == [1, 2, 3]
    assert all(len({tuple(rows[0]) for rows in part.intents}) == 1 for part in parts)


def test_the_domains_name_150_intents_once() -> None:
    names = " ".join(DOMAINS.values()).split()
    assert len(names) == len(set(names)) == 150


def test_an_exact_interval_is_clopper_and_pearsons() -> None:
    assert exact_interval(0, 300) == pytest.approx((0.0, 0.01222), abs=1e-5)
    assert exact_interval(294, 300) == pytest.approx((0.957, 0.993), abs=5e-4)
