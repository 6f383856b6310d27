"""The outcome of a selection, row by row: why each was kept or dropped, what is nearest to it, and the lines that say
so."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.domain.selection.linkage.clustering import Rows
from backend.domain.selection.select import Method, Selection, SelectionReport
from gpu_runners.selecting.lines import RESULT_FIELD
from gpu_runners.selecting.rows import RowSet

_CELLS = 1 << 24  # of a block of cosines: 64 MB as float32
_NEEDS_ESCAPES = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_DECIMALS = 6  # what a cosine distance is good for

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
OnProgress = Callable[[str, int, int], None]


class Why(StrEnum):
    """The reason for a row's fate."""

    KEPT = "kept"
    BELOW_FLOOR = "below_score_floor"
    OUTSCORED = "outscored_in_its_cluster"  # two_step: another row of its cluster was picked
    NOT_PICKED = "not_picked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """The nearest pick of a row other than itself, and its cosine distance."""

    row: int
    distance: float


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A finished selection beside what it was made from. `units` (n, d) are the unit rows that it compared; `k_asked`
    is K before it was dropped to the number of near-duplicate groups."""

    rows: RowSet
    units: Rows
    selection: Selection
    k_asked: int

    @property
    def report(self) -> SelectionReport:
        return self.selection.report

    @cached_property
    def rank_of(self) -> dict[int, int]:
        """Each pick's place, from 1."""
        return {row: rank for rank, row in enumerate(self.selection.picks, start=1)}

    @cached_property
    def picks_of(self) -> dict[int, list[int]]:
        """The picks of each cluster, in the order of picking."""
        out: dict[int, list[int]] = {}
        for pick in self.selection.picks:
            out.setdefault(self.report.cluster_of[pick], []).append(pick)
        return out

    @cached_property
    def below_floor(self) -> frozenset[int]:
        return frozenset(self.report.floor_dropped)

    def name(self, row: int) -> str:
        """The row's id as it may be shown on a terminal."""
        own = self.rows.ids[row]
        return own if own.isprintable() else repr(own)

    def why(self, row: int) -> Why:
        if row in self.rank_of:
            return Why.KEPT
        if row in self.below_floor:
            return Why.BELOW_FLOOR
        is_two_step = self.report.method == Method.TWO_STEP
        return Why.OUTSCORED if is_two_step and self.report.cluster_of[row] in self.picks_of else Why.NOT_PICKED

    def nearest_picks(self, rows: Sequence[int], on_progress: OnProgress | None = None) -> list[Neighbour | None]:
        """Find for each row the nearest pick that is not itself (the earliest of equals); None where there is none. A
        matrix product of rows x picks x width."""
        picks = list(self.selection.picks)
        if not picks or not rows:
            return [None] * len(rows)
        picked, place = self.units[picks].T, {pick: at for at, pick in enumerate(picks)}
        out: list[Neighbour | None] = []
        size = max(1, _CELLS // len(picks))
        for start in range(0, len(rows), size):
            block = list(rows[start : start + size])
            cosines = self.units[block] @ picked
            for at, row in enumerate(block):
                if row in place:
                    cosines[at, place[row]] = -np.inf
            best = cosines.argmax(axis=1)
            distances = 1.0 - cosines[np.arange(len(block)), best].astype(np.float64)
            out += [_neighbour(picks[b], d) for b, d in zip(best.tolist(), distances.tolist(), strict=True)]
            if on_progress is not None:
                on_progress("nearest picks", len(out), len(rows))
        return out

    def kept_lines(self, on_progress: OnProgress | None = None) -> Iterator[str]:
        """The kept rows as JSON, best first."""
        picks = self.selection.picks
        for row, nearest in zip(picks, self.nearest_picks(picks, on_progress), strict=True):
            about = {"rank": self.rank_of[row], "cluster": self.report.cluster_of[row], **self._near(nearest)}
            yield self._line(row, about)

    def dropped_lines(self, on_progress: OnProgress | None = None) -> Iterator[str]:
        """The other rows as JSON, in the order of the file, each with why and with the pick that took its place."""
        dropped = [row for row in range(len(self.rows)) if row not in self.rank_of]
        for row, nearest in zip(dropped, self.nearest_picks(dropped, on_progress), strict=True):
            cluster = self.report.cluster_of[row]
            winner = self.picks_of.get(cluster, [None])[0] if cluster >= 0 else None
            about = {
                "why": self.why(row),
                "cluster": cluster if cluster >= 0 else None,
                "cluster_pick": None if winner is None else self.rows.ids[winner],
                **self._near(nearest),
            }
            yield self._line(row, about)

    def report_json(self) -> dict[str, Any]:
        """The domain's report, integers only; its indices are lines of the input, counted from 0 without blank ones."""
        return self.report.to_json() | {"k_asked": self.k_asked}

    def _near(self, nearest: Neighbour | None) -> dict[str, Any]:
        if nearest is None:
            return {"nearest_pick": None}
        return {"nearest_pick": {"id": self.rows.ids[nearest.row], "distance": nearest.distance}}

    def _line(self, row: int, about: dict[str, Any]) -> str:
        rows = self.rows
        fields: dict[str, Any] = {"id": rows.ids[row]}
        if rows.texts[row]:
            fields["text"] = rows.texts[row]
        if rows.scores is not None:
            fields["score"] = float(rows.scores[row])
        if rows.labels is not None:
            fields["label"] = rows.labels[row]
        fields |= json.loads(rows.rests[row]) if rows.rests[row] else {}
        return json_line(fields | {RESULT_FIELD: about})


def json_line(value: Any) -> str:
    """JSON as it is read best; all escaped where it holds half a surrogate pair, which UTF-8 cannot, or what some
    readers take for the end of a line."""
    text = json.dumps(value, ensure_ascii=False)
    return json.dumps(value, ensure_ascii=True) if _NEEDS_ESCAPES.search(text) else text


def _neighbour(row: int, distance: float) -> Neighbour | None:
    if not np.isfinite(distance):  # the only pick, asked about itself
        return None
    return Neighbour(row=row, distance=round(min(max(distance, 0.0), 2.0), _DECIMALS))
