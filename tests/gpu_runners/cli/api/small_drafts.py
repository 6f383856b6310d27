"""The far side of `kolm drafts`: the draft cache's answers, on loopback. A test compares their shapes with those in
docs/openapi.json."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import parse_qs

TOTAL = {
    "n_slices": 2,
    "n_slices_offered": 1,
    "n_drafts": 9,
    "n_shown": 6,
    "expected_accepted": 4.1,
    "expected_avoided_microusd": 1000,
    "expected_verification_microusd": 1200,
    "expected_net_microusd": -200,
}


def rate(k: int, n: int) -> dict[str, Any]:
    if n == 0:
        return {"k": 0, "n": 0, "rate_ppm": None, "low_ppm": None, "high_ppm": None}
    share = 1_000_000 * k // n
    return {"k": k, "n": n, "rate_ppm": share, "low_ppm": max(0, share - 90_000), "high_ppm": share + 70_000}


def lookups(**changes: Any) -> dict[str, Any]:
    return {
        "n_lookups": 20,
        "arms": {"held_back": 1, "not_worth": 7, "offered": 12},
        "n_shown": 96,
        "n_accepted": 60,
        "n_reused": 55,
        "acceptance": rate(60, 96),
        "kept_tokens": {"judged": 2400},
        "avoided_microusd": 120_000,
        "verification_microusd": 150_000,
        "embedding_microusd": 20,
        "audit_microusd": 1_000,
        "exploration_microusd": 0,
        "net_microusd": -31_020,
    } | changes


def other_label(**changes: Any) -> dict[str, Any]:
    return {
        "n": 0,
        "n_other": 0,
        "n_fresh": 0,
        "n_fresh_other": 0,
        "estimate_ppm": None,
        "low_ppm": 0,
        "high_ppm": 1_000_000,
    } | changes


def strategy(**changes: Any) -> dict[str, Any]:
    return {
        "strategy": "judge",
        "judge": "",
        "judge_refusal": "",
        "lookups": lookups(),
        "is_suspended": False,
        "suspended_at": None,
        "bad_drafts": {
            "n_audited": 40,
            "n_refused": 1,
            "rate_ppm": 25_000,
            "low_ppm": 0,
            "high_ppm": 1_000_000,
            "bound_ppm": 20_000,
            "other_label": other_label(),
        },
        "negative_controls": rate(0, 12),
        "positive_controls": rate(11, 12),
        "n_observations": 96,
        "by_distance": [{"distance_ppm": 50_000, **rate(50, 60)}, {"distance_ppm": 300_000, **rate(10, 36)}],
        "curve": [{"distance_ppm": d, "acceptance_ppm": 900_000 - d // 2} for d in range(0, 1_000_001, 50_000)],
    } | changes


def saving(**changes: Any) -> dict[str, Any]:
    part = {
        "n_reused": 55,
        "net_microusd": -31_020,
        "net_share_ppm": -77_550,
        "avoided_microusd": 120_000,
        "costs_microusd": 151_020,
        "paid_microusd": 280_000,
        "without_drafts_microusd": 400_000,
    }
    labels = dict.fromkeys(part, 0) | {"n_reused": 30, "net_microusd": 600, "avoided_microusd": 600}
    return {
        "summary": "Net saving -$0.0304, -7.6 % of what synthesis and labelling would have cost: slices, labels",
        "net_microusd": -30_420,
        "net_share_ppm": -75_000,
        "without_drafts_microusd": 405_600,
        "slices": part,
        "labels": labels,
        "accepted": "60 of 96, 62.5 % [53.5, 69.5]",
        "acceptance": rate(60, 96),
        "n_repeated": 0,
        "teacher_ms_saved": 12_340,
        "time_saved": "12.3 s",
        "engine": {"written": 300, "proposed": 400, "kept": 200, "per_pass": 3.0},
        "engine_summary": "200 of 300 tokens came from drafts",
        "n_compiles": 4,
    } | changes


def slice_drafts(**changes: Any) -> dict[str, Any]:
    return {
        "object": "slice_drafts",
        "id": "slc_1",
        "slice": "refund",
        "n_accepted": 2,
        "n_refused": 1,
        "n_void": 1,
        "net_microusd": -12,
        "drafts": [
            asked_draft("drf_1", "accepted", "money back,\nplease"),
            asked_draft("drf_2", "accepted", None),
            asked_draft("drf_3", "refused", "[red]where is it\x1b[31m?"),
            asked_draft("drf_4", "void", "long " * 40),
        ],
    } | changes


def asked_draft(id: str, verdict: str, text: str | None) -> dict[str, Any]:
    return {
        "id": id,
        "verdict": verdict,
        "text": text,
        "strategy": "judge",
        "certificate": "judged" if verdict == "accepted" else None,
        "predicted_ppm": 750_000,
        "distance_ppm": 125_000,
        "kinship": "other",
        "created_at": "2026-11-21T21:00:00.000Z",
    }


def family(name: str = "router", **changes: Any) -> dict[str, Any]:
    holdings = {
        "n_drafts": 1234,
        "n_kept": 45,
        "n_quarantined": 0,
        "n_sources": 14,
        "n_bytes": 2_500_000,
        "n_tokens": 9000,
        "cost_microusd": 12_345,
        "newest_at": "2026-11-21T20:00:00.000Z",
    }
    scope = {"teacher": "m@r1", "embedder": "e", **holdings, "lookups": lookups(), "strategies": [strategy()]}
    side = {"n_slices": 3, "n_candidates": 36, "cost_per_candidate_microusd": 12.0, "mean_score": 0.5}
    return {
        "object": "draft_stats",
        "family": name,
        **holdings,
        "lookups": lookups(),
        "labels": {"n_reused": 30, "avoided_microusd": 600},
        "net_microusd": -30_420,
        "saving": saving(),
        "holdback": {"held_back": side, "not_held_back": side | {"n_slices": 19, "mean_score": None}},
        "scopes": [scope],
    } | changes


def draft(n: int, **changes: Any) -> dict[str, Any]:
    return {
        "id": f"drf_{n}",
        "object": "draft",
        "family": "router",
        "teacher": "m@r1",
        "embedder": "e",
        "text": f"text {n}",
        "state": "live",
        "is_kept": n == 0,
        "score": None,
        "signal": "logprob",
        "logprob": -3.5,
        "n_tokens": 4,
        "n_bytes": 500,
        "n_shown": 2,
        "n_accepted": 1,
        "root": None,
        "compile": "cmp_1",
        "cost_microusd": 2,
        "created_at": "2026-11-21T20:00:00.000Z",
        "expires_at": "2027-02-19T20:00:00.000Z",
    } | changes


def verdict() -> dict[str, Any]:
    return {
        "compile": "cmp_2",
        "strategy": "judge",
        "kind": "verdict",
        "certificate": "judged",
        "is_accepted": True,
        "distance_ppm": 125_000,
        "predicted_ppm": 750_000,
        "n_tokens_kept": 4,
        "cost_microusd": 3,
        "created_at": "2026-11-21T21:00:00.000Z",
    }


def previewed() -> dict[str, Any]:
    offered = {
        "slice": "refund",
        "strategy": "judge",
        "arm": "offered",
        "n_sources": 2,
        "nearest_distance_ppm": 125_000,
        "n_drafts": 9,
        "n_shown": 6,
        "expected_accepted": 4.1,
        "acceptance_low_ppm": 400_000,
        "acceptance_high_ppm": 800_000,
        "fresh_microusd": 2.5,
        "expected_avoided_microusd": 1000,
        "expected_verification_microusd": 1200,
        "expected_net_microusd": -200,
        "break_even_ppm": 210_000,
        "reason": "These drafts pay.",
    }
    nothing = offered | dict.fromkeys(
        ("strategy", "nearest_distance_ppm", "acceptance_low_ppm", "acceptance_high_ppm", "fresh_microusd",
         "break_even_ppm")
    )  # fmt: skip
    zero = dict.fromkeys([name for name in offered if name.startswith(("n_", "expected_"))], 0)
    nothing |= zero | {"slice": "other", "arm": "no_drafts", "reason": "Nothing is near."}
    return {"object": "draft_preview", "family": "router", "slices": [offered, nothing], "total": TOTAL}


def _whole(data: list[dict[str, Any]]) -> dict[str, Any]:
    return {"object": "list", "data": data, "has_more": False, "next_cursor": None}


class DraftsApi(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.families = [family()]
        self.total = saving(summary="Net saving $1.00")
        self.drafts = [draft(n) for n in range(3)]
        self.slices = [slice_drafts()]
        self.preview = previewed()
        self.page = 100
        self.saving: dict[str, Any] = TOTAL | {"reason": None}
        self.within_budget = True
        self.has_no_worker = False
        self.purged = {"n_drafts": 3, "n_sources": 2, "n_label_drafts": 5, "n_calibrations": 1, "n_keys": 1}
        self.requests: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def list_page(self, query: dict[str, list[str]]) -> dict[str, Any]:
        """As the API: a search that ended early has a cursor, and says so."""
        ids = [row["id"] for row in self.drafts]
        start = ids.index(query["after"][0]) + 1 if "after" in query else 0
        limit, q = int(query["limit"][0]), query.get("q", [""])[0]
        seen: list[dict[str, Any]] = []
        found: list[dict[str, Any]] = []
        for row in self.drafts[start : start + self.page]:
            seen.append(row)
            found += [row] if q in (row["text"] or "") else []
            if len(found) == limit:
                break
        has_more = start + len(seen) < len(self.drafts)
        cursor = seen[-1]["id"] if has_more else None
        truncated = has_more and len(found) < limit
        return {"object": "list", "data": found, "has_more": has_more, "next_cursor": cursor, "truncated": truncated}

    def estimate(self) -> dict[str, Any]:
        amounts = {"low_microusd": 10_000, "expected_microusd": 12_000, "high_microusd": 20_000}
        return {
            "steps": [{"step": "synthesis", **amounts}],
            "total": amounts,
            "budget_microusd": 5_000_000,
            "within_budget": self.within_budget,
            "draft_cache": self.saving,
        }


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        api = self._note()
        path, _, query = self.path.partition("?")
        if path == "/v1/drafts/stats":
            return self._say(200, _whole(api.families) | {"total": api.total})
        if path == "/v1/compiles/cmp_1/drafts":
            return self._say(200, _whole(api.slices))
        if path == "/v1/drafts":
            return self._say(200, api.list_page(parse_qs(query)))
        for row in api.drafts:
            if path == f"/v1/drafts/{row['id']}":
                return self._say(200, row | {"slice_text": "refunds", "verdicts": [verdict()]})
        return self._say(404, {"detail": "There is no such draft.", "code": "not_found"})

    def do_DELETE(self) -> None:
        api = self._note()
        path, _, query = self.path.partition("?")
        if path == "/v1/drafts":
            name = parse_qs(query)["family"][0]
            return self._say(200, {"object": "draft_purge", "family": name, **api.purged})
        for row in api.drafts:
            if path == f"/v1/drafts/{row['id']}":
                return self._say(200, {"object": "draft_deletion", "n_drafts": 1 + (row["id"] == "drf_0")})
        return self._say(404, {"detail": "There is no such draft.", "code": "not_found"})

    def do_POST(self) -> None:
        api = self._note()
        assert json.loads(self.rfile.read(int(self.headers["Content-Length"])))["name"] == "refund-router"
        if api.has_no_worker:
            return self._say(503, {"detail": "No worker answered.", "code": "no_worker", "retryable": True})
        return self._say(200, api.preview if self.path == "/v1/drafts/preview" else api.estimate())

    def _note(self) -> DraftsApi:
        api = cast(DraftsApi, self.server)
        assert self.headers["Authorization"] == "Bearer kolm_sk_test"
        api.requests.append(f"{self.command} {self.path}")
        return api

    def _say(self, status: int, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json" if status < 400 else "application/problem+json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def drafts_api() -> Iterator[DraftsApi]:
    with DraftsApi() as api:
        thread = threading.Thread(target=api.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield api
        finally:
            api.shutdown()
            thread.join()
