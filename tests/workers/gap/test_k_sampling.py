"""`training_stats.k_sampling`: what the artifact tells of its selection is what the rows hold, in the documented
fields, as integers."""

import hashlib
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backend.artifacts.receipting import as_integers
from backend.compiles.models import Candidate, Compile, Slice, TeacherCall
from backend.compiles.shapes import SliceShape
from backend.domain.canonical import canonical_json, sha256_of
from backend.domain.lifecycle import StepName
from backend.domain.selection.select import select
from tests.workers.collapsing_teacher import TO_SELECTION, by_slice, collapsed, events, make
from tests.workers.pipeline_helpers import (
    ScriptedTeacher,
    calls,
    candidates,
    slices,
    start,
    step,
    taught_by,
    walk_through,
)
from workers.candidates.ranking import stack
from workers.embedding.sentence import load_embedder
from workers.gap.k_sampling import k_sampling

pytestmark = pytest.mark.usefixtures("committed_db")
PAGE = (Path(__file__).parents[3] / "docs" / "kolm-format.md").read_text()
KEPT = ("picked", "trained", "left_out", "unverified")


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What a compile left after labeling. Each mitigation is walked once for all tests."""

    mitigation: str
    told: dict[str, Any]
    candidates: list[Candidate]
    slices: list[Slice]
    calls: list[TeacherCall]
    reports: list[dict[str, Any]]
    facts: dict[str, dict[str, Any]]


def walked(row: Compile) -> World:
    run = start(row)
    walk_through(run, *TO_SELECTION, StepName.LABELING)
    with run.transaction() as fenced:
        told = k_sampling(
            run,
            fenced.compile,
            embedder=run.step(StepName.SLICING).output["facts"]["embedder"],
            labels=run.step(StepName.LABELING).output["facts"],
        )
    return World(
        mitigation=row.spec["sampling"]["on_gap"][0],
        told=as_integers(told),  # as packaging writes it
        candidates=candidates(row),
        slices=slices(row),
        calls=calls(row),
        reports=[event.data for event in events(row, "selection.report")],
        facts={f["name"]: f for f in step(row, StepName.SELECTION).output["facts"]["slices"]},
    )


@pytest.fixture(scope="module")
def worlds() -> dict[str, World]:
    return {}


@pytest.fixture(params=["drop_k", "resynthesize", "split_slice"])
def world(request: Any, monkeypatch: Any, worlds: dict[str, World]) -> World:
    if request.param not in worlds:
        writes = {"split_slice": ScriptedTeacher(write=by_slice())}
        taught_by(monkeypatch, writes.get(request.param) or collapsed())
        worlds[request.param] = walked(make([request.param], sampling={"k_distill": "half"}))
    return worlds[request.param]


def documented(table: str) -> set[str]:
    rows = PAGE.partition(f"| {table} | value |\n|---|---|\n")[2].partition("\n\n")[0]
    return {name for row in rows.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])}


def test_the_fields_are_those_of_the_format_page_and_hold_no_float(world):
    told = world.told
    assert set(told) == documented("`k_sampling`")
    for entry in told["slices"]:
        assert set(entry) == documented("`slices[]`")
    assert set(told["embedder"]) == {"id", "dim", "sha256"}
    assert set(told["teacher"]) == {"calls", "tokens_in", "tokens_out", "cost_microusd"}
    canonical_json(told)
    check_integers(told)


def check_integers(value: Any, at: str = "") -> None:
    match value:
        case dict():
            for key, item in value.items():
                check_integers(item, f"{at}/{key}")
        case list():
            for item in value:
                check_integers(item, at)
        case _:
            assert value is None or type(value) in (bool, int, str) or isinstance(value, str), at


def test_each_slice_tells_of_its_own_candidates(world):
    told = world.told
    rows = world.candidates
    for pool, entry in zip(world.slices, told["slices"], strict=True):
        mine = [c for c in rows if c.slice_id == pool.id and c.state != "rejected"]
        kept = {hashlib.sha256(c.text.encode()).hexdigest(): c for c in mine if c.state in KEPT}
        assert entry["slice"] == pool.name
        texts = [pick["cand_sha256"] for pick in entry["picks"]]
        assert set(texts) == set(kept)
        assert entry["k_actual"] == len(kept) == pool.k_actual
        if pool.selection["mitigation"] == "split":
            assert (entry["mitigation"], entry["split_into"], entry["picks"]) == (
                "split",
                [s.name for s in world.slices[1:]],
                [],
            )
            continue
        assert entry["report"]["picks_sha256"] == sha256_of([kept[text].text_key for text in texts]), "best first"
        assert entry["n_verified"] == len(mine) == sum(Counter(c.cluster for c in mine).values())
        for pick in entry["picks"]:
            c = kept[pick["cand_sha256"]]
            assert (pick["cluster"], pick["score_ppm"], pick["from_cache"]) == (c.cluster, round(c.score * 1e6), False)
        check_geometry(entry, kept, mine)


def check_geometry(entry: dict[str, Any], kept: dict[str, Any], mine: list[Any]) -> None:
    picked = stack([kept[pick["cand_sha256"]].embedding for pick in entry["picks"]]).astype(np.float64)
    distances = 1 - picked @ picked.T
    pairs = distances[np.triu_indices(len(picked), 1)]
    assert entry["mean_pairwise_ppm"] == pytest.approx(pairs.mean() * 1e6, abs=2)
    np.fill_diagonal(distances, np.inf)
    nearest = [pick["nn_distance_ppm"] for pick in entry["picks"]]
    assert nearest == pytest.approx((distances.min(axis=1) * 1e6).tolist(), abs=2)
    scores = [kept[pick["cand_sha256"]].score for pick in entry["picks"]]
    assert entry["mean_score_ppm"] == pytest.approx(np.mean(scores) * 1e6, abs=1)
    clustered = stack([c.embedding for c in mine if c.cluster >= 0]).astype(np.float64)
    farthest = (1 - clustered @ picked.T).min(axis=1).max()
    assert entry["coverage_radius_ppm"] == pytest.approx(farthest * 1e6, abs=2)
    assert sum(entry["cluster_sizes"]) == len(clustered)


def test_what_a_mitigation_did_is_told(world):
    entries = world.told["slices"]
    named = {"drop_k": "drop_k", "resynthesize": "resynthesize", "split_slice": "split"}[world.mitigation]
    entry = entries[0]
    assert (entry["mitigation"], entry["gap_detected"], entry["severity"]) == (named, True, "degenerate")
    assert entry["n_groups"] == 4 < entry["k_requested"] == 6
    assert entry["k_actual"] == {"drop_k": 4, "resynthesize": 6, "split": 0}[named]
    assert entry["resynth_rounds"] == (1 if named == "resynthesize" else 0)
    assert ("at_k_requested" in entry["report"]) == (named != "resynthesize")
    for half in entries[1:]:
        assert (half["split_from"], half["mitigation"], half["n_taken_over"]) == (entry["slice"], "none", 6)
        assert [r["reaction"] for r in half["reactions"]] == ["split_off"]


def test_money_tokens_and_the_empty_cache_are_told_as_they_are(world):
    told = world.told
    wrote = [c for c in world.calls if c.step in (StepName.SYNTHESIS, StepName.SELECTION)]
    assert told["teacher"] == {
        "calls": len(wrote),
        "tokens_in": sum(c.input_tokens for c in wrote),
        "tokens_out": sum(c.output_tokens for c in wrote),
        "cost_microusd": sum(c.cost_microusd for c in wrote),
    }
    assert told["draft_cache"] == {
        "lookups": 0,
        "offered": 0,
        "accepted": 0,
        "acceptance_rate_ppm": None,
        "acceptance_low_ppm": None,
        "acceptance_high_ppm": None,
        "kept_tokens": {},
        "tokens_saved": 0,
        "saved_microusd": 0,
        "labels_reused": 0,
    }
    identity = load_embedder().identity
    assert f"{told['embedder']['id']}@sha256:{told['embedder']['sha256']}" == identity
    assert (told["embedder"]["dim"], told["ranker"], told["metric"]) == (384, "verifier", "cosine")


def test_the_log_the_event_and_the_api_tell_the_same(world):
    told = world.told
    by_slice = {report["slice"]: report for report in world.reports}
    assert told["log"] == "\n".join(by_slice[entry["slice"]]["log"] for entry in told["slices"])
    assert "WARN cluster gap detected; degenerate split" in told["log"]
    assert re.search(r"candidates: \d+   K target: 6   kept: \d", told["log"])
    for pool, entry in zip(world.slices, told["slices"], strict=True):
        shown = SliceShape.of(pool)
        same = set(by_slice[pool.name]) & set(entry)
        assert len(same) > 10
        assert {n: by_slice[pool.name][n] for n in same - {"gap_detected"}} == {
            n: entry[n] for n in same - {"gap_detected"}
        }
        assert shown["selection"]["log"] == world.facts[pool.name]["log"] == by_slice[pool.name]["log"]
        assert shown["selection"]["picks"] == entry["picks"]
        assert (shown["split_from"], shown["split_into"]) == (entry["split_from"], entry["split_into"])
        assert "cluster_of" not in shown["selection"]


def test_the_second_selection_is_by_label_and_has_its_report(world):
    told = world.told["labels"]["selection"]
    labeled = [c for c in world.candidates if c.state in ("trained", "left_out")]
    assert told["n"] == len(labeled)
    sizes = Counter(c.label for c in labeled)
    assert {s["label"]: s["n"] for s in told["strata"]} == sizes
    assert told["k_requested"] == max(-(-len(labeled) // 2), len(sizes))
    assert sum(s["k_actual"] for s in told["strata"]) == told["k_actual"] == told["k_requested"]
    ordered = sorted(labeled, key=lambda c: c.text_key)
    again = select(
        stack([c.embedding for c in ordered]),
        [c.agreement_ppm / 1e6 for c in ordered],
        [c.text_key for c in ordered],
        k=told["k_requested"],
        labels=[c.label for c in ordered],
        method="two_step",
        score_floor=0.0,
    )
    assert told["picks_sha256"] == again.report.picks_sha256
