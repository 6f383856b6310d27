"""The feedback of this runner on packs in use: counts by recipe, and shapes of places that no recipe knew. Text only of
tenants who opted in, and then as token ids."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from backend.domain.recipes.feedback import MAX_ROWS, PackFeedback
from backend.domain.recipes.pack import RecipePack

MISSED_EVERY = 8  # every so many places without a recipe one is written down, and counts as that many
MAX_LEARNED = 64  # answers between two reports
MAX_LEARNED_TOKENS = 1024
_KEEP = 1024  # packs


class PackLog:
    """The log of one tenant's one pack since the last report. Any thread."""

    def __init__(self, key: str, pack: RecipePack) -> None:
        self._key, self._pack = key, pack
        self._lock = threading.Lock()
        self._n_missed = 0
        self._begin()

    def _begin(self) -> None:
        self._tried: dict[int, list[int]] = {}
        self._missed: dict[str, int] = {}
        self._learned: list[list[int]] = []
        self._n_answers = self._n_tokens = 0

    def count_run(self, place: int, drafted: int, accepted: int) -> None:
        """Count a recipe's run, of which `drafted` tokens met the answer (drafted, or only compared), the first
        `accepted` held."""
        with self._lock:
            counts = self._tried.setdefault(place, [0, 0])
            counts[0] += drafted
            counts[1] += accepted

    def wants_missed(self) -> bool:
        self._n_missed += 1
        return self._n_missed % MISSED_EVERY == 0

    def count_miss(self, shape: str) -> None:
        with self._lock:
            if shape in self._missed or len(self._missed) < MAX_ROWS:
                self._missed[shape] = self._missed.get(shape, 0) + MISSED_EVERY

    def count_answer(self, tokens: Sequence[int], *, learns: bool) -> None:
        with self._lock:
            self._n_answers += 1
            self._n_tokens += len(tokens)
            if learns and len(self._learned) < MAX_LEARNED:
                self._learned.append([int(token) for token in tokens[:MAX_LEARNED_TOKENS]])

    def drain(self) -> PackFeedback | None:
        """None where nothing was answered."""
        with self._lock:
            if not self._n_answers:
                return None
            tried = sorted(self._tried.items(), key=lambda item: (-item[1][0], item[0]))[:MAX_ROWS]
            missed = sorted(self._missed.items(), key=lambda item: (-item[1], item[0]))
            feedback = PackFeedback(
                artifact_sha256="",
                pack_sha256=self._key,
                n_answers=self._n_answers,
                n_tokens=self._n_tokens,
                tried=[self._row(place, counts) for place, counts in tried],
                missed=[{"shape": shape, "n": n} for shape, n in missed],
                learned=[{"tokens": tokens} for tokens in self._learned],
            )
            self._begin()
            return feedback

    def _row(self, place: int, counts: Sequence[int]) -> dict[str, Any]:
        return {"id": self._pack.id_of(place), "tried": counts[0], "accepted": counts[1]}


class FeedbackLog:
    """The logs of all packs, by tenant: two tenants with equal packs share nothing. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logs: OrderedDict[tuple[str, str], PackLog] = OrderedDict()

    def of(self, tenant: str, key: str, pack: RecipePack) -> PackLog:
        with self._lock:
            log = self._logs.get((tenant, key))
            if log is None:
                log = self._logs[tenant, key] = PackLog(key, pack)
            self._logs.move_to_end((tenant, key))
            while len(self._logs) > _KEEP:
                self._logs.popitem(last=False)
            return log

    def drain(self) -> list[tuple[str, PackFeedback]]:
        """(tenant, what came since the last call); `artifact_sha256` is "" and for the caller to fill in."""
        with self._lock:
            logs = list(self._logs.items())
        drained = [(tenant, log.drain()) for (tenant, _), log in logs]
        return [(tenant, one) for tenant, one in drained if one is not None]
