"""The result of the job that makes a recipe pack, judged as `runner_results` judges the others."""

from collections.abc import Collection
from typing import Any

from backend.domain.jobs.recipe_jobs import PackRecipesResult
from backend.domain.jobs.result_checks import (
    check,
    check_latencies,
    is_count,
    is_digest,
    is_plain,
    is_string,
    is_whole,
    read,
)

MAX_ARMS = 16
MAX_COUNT = 2**53 - 1
MAX_PACE_PPM = 10**9
SOURCES = frozenset(("pack", "schema", "prompt", "model"))


def pack_recipes_result(value: dict[str, Any], *, n_prompts: int, sources: Collection[str]) -> PackRecipesResult:
    """Check a result for `n_prompts` prompts and what was allowed to draft."""
    result = read(PackRecipesResult, value)
    check(is_digest(result.pack_sha256), "pack_sha256 is no sha256")
    arms = result.measured
    check(isinstance(arms, list) and 0 < len(arms) <= MAX_ARMS, "measured is not a list of arms")
    for arm in arms:
        _check_arm(arm, n_prompts, frozenset(sources))
    check(arms[0]["sources"] == [], "the first arm has drafts")
    check(len({arm["n_prompts"] for arm in arms}) == 1, "the arms were measured on different prompts")
    check(is_whole(result.chosen, 0, len(arms) - 1), "chosen is no arm")
    check(is_string(result.reason, 500), "the reason is no text")
    is_counts = isinstance(result.stats, dict) and all(is_whole(x, 0, MAX_COUNT) for x in result.stats.values())
    check(is_counts and is_plain(result.stats, floats=False, most=MAX_COUNT), "stats are not whole numbers by name")
    check(is_whole(result.n_identical, 0, arms[0]["n_prompts"]), "n_identical is no count of prompts")
    check(is_string(result.device, 200), "the device is no name")
    check(isinstance(result.engine, dict) and is_plain(result.engine), "engine is not a plain object")
    check(is_count(result.runner_ms), "runner_ms is no count")
    check(is_whole(result.own_pace_ppm, 0, MAX_PACE_PPM), "own_pace_ppm is no pace")
    return result


def _check_arm(arm: object, n_prompts: int, sources: frozenset[str]) -> None:
    counts = ("n_prompts", "n_tokens", "n_steps", "wall_us", "drafted", "accepted", "p50_us")
    is_arm = isinstance(arm, dict) and set(arm) == {*counts, "sources", "by_source", "latencies_us"}
    check(is_arm, "an arm lacks its parts")
    assert isinstance(arm, dict)
    named = arm["sources"]
    is_list = isinstance(named, list) and all(isinstance(x, str) and x in sources for x in named)
    check(is_list and len(set(named)) == len(named), "an arm drafts with what it may not")
    check(all(is_whole(arm[name], 0, MAX_COUNT) for name in counts), "an arm holds what is no count")
    check(0 < arm["n_prompts"] <= n_prompts, "an arm has more prompts than there are")
    check(arm["accepted"] <= arm["drafted"], "an arm accepts more than it drafts")
    check_latencies(arm["latencies_us"])
    check(len(arm["latencies_us"]) == arm["n_prompts"], "not one latency a prompt")
    check(isinstance(arm["by_source"], list) and len(arm["by_source"]) <= len(SOURCES), "by_source is no list")
    for row in arm["by_source"]:
        is_row = isinstance(row, dict) and set(row) == {"kind", "drafted", "accepted"} and row["kind"] in named
        check(is_row, "by_source names what did not draft")
        check(all(is_whole(row[x], 0, MAX_COUNT) for x in ("drafted", "accepted")), "by_source holds what is no count")
