"""The far side of `kolm ablate`: the small API, with arms that end when they are asked about."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from backend.compiles.api.shapes import ComparisonShape
from backend.domain.evaluation.paired import Paired
from backend.domain.planning.ablations import Comparison, Outcome
from tests.gpu_runners.cli.api.small_api import SmallApi, _Handler

PATH = "/v1/compiles/cmp_1/ablations"


class AblationsApi(SmallApi):
    def __init__(self) -> None:
        super().__init__()
        self.RequestHandlerClass = _AblationsHandler
        self.arms: list[dict[str, Any]] = []  # oldest first
        self.bodies: list[dict[str, Any]] = []
        self.failing: set[str] = set()
        self.paired = Paired(both=85, first=6, second=3, neither=6)

    def add(self, arm: str, *, status: str = "gate_failed") -> dict[str, Any]:
        row = {"id": f"cmp_arm{len(self.arms)}", "arm": arm, "status": status, "name": f"refund-router-ablation-{arm}"}
        row |= {
            "failure": {"code": "budget_exhausted", "message": "The budget is spent."} if status == "failed" else None
        }
        row |= {"comparison": None if status == "failed" else ComparisonShape.of(self.comparison(arm))}
        self.arms.append(row)
        return row

    def comparison(self, arm: str) -> Comparison:
        n, cost = (108, 1200) if arm == "all" else (36, 400)
        ours = Outcome(correct=91, n=100, n_labels=36, n_labels_reused=0, label_cost_microusd=400, n_pairs=118,
                       k_score_ppm=912_345)  # fmt: skip
        theirs = Outcome(correct=88, n=100, n_labels=n, n_labels_reused=36, label_cost_microusd=cost, n_pairs=208,
                         k_score_ppm=900_000)  # fmt: skip
        return Comparison(selected=ours, arm=theirs, paired=self.paired)

    def arm_row(self, arm: dict[str, Any]) -> dict[str, Any]:
        total = {"low_microusd": 1, "expected_microusd": 2, "high_microusd": 3}
        return {**arm, "estimate": {"total": total}, "budget_microusd": 5_000_000, "spent_microusd": 3}


class _AblationsHandler(_Handler):
    def do_GET(self) -> None:
        api = cast(AblationsApi, self.server)
        path = self.path.partition("?")[0]
        if path == PATH:
            return self._say(200, {"object": "list", "data": api.arms[::-1], "has_more": False, "next_cursor": None})
        for arm in api.arms:
            if path == f"/v1/compiles/{arm['id']}":
                return self._say(200, api.arm_row(arm))
            if path == f"/v1/compiles/{arm['id']}/events":
                return self._stream(int(self.headers["Last-Event-ID"]))
        return super().do_GET()

    def do_POST(self) -> None:
        api = cast(AblationsApi, self.server)
        if self.path != PATH:
            return super().do_POST()
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        api.bodies.append(body)
        api.idempotency_keys.append(self.headers["Idempotency-Key"])
        if api.refuses:
            detail = "Only a compile that was evaluated can be ablated; this one is running. Wait until it has ended."
            return self._say(409, {"detail": detail, "code": "not_ablatable"})
        arm = api.add(body["arm"], status="failed" if body["arm"] in api.failing else "gate_failed")
        return self._say(202, api.arm_row(arm))


@contextmanager
def ablations_api() -> Iterator[AblationsApi]:
    with AblationsApi() as api:
        thread = threading.Thread(target=api.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield api
        finally:
            api.shutdown()
            thread.join()
