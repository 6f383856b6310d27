"""The proposer with faults, for requests of tenants that are named after them. vLLM makes it in its own process."""

from collections.abc import Sequence
from typing import Any

from gpu_runners.models.protocol import DraftKind
from gpu_runners.speculation.batch import BatchDrafter
from gpu_runners.speculation.drafter import Drafter
from gpu_runners.speculation.vllm.plugin import RecipeProposer

NAME = "tests.vllm.faulty_proposer.FaultyProposer"
OF_A_REQUEST = ("open", "propose", "advance", "panic", "not ids", "close", "told")
OF_A_STEP = "step"


class Panic(BaseException):
    """As PyO3's, which is no Exception."""


class FaultySource:
    kind, key = DraftKind.PACK, 0

    def __init__(self, fault: str) -> None:
        self._fault, self._n = fault, 0

    def advance(self, token: int) -> None:
        self._n += 1
        if self._fault == "advance" and self._n > 3:
            raise KeyError("advance")

    def propose(self, ahead: Sequence[int], most: int) -> Sequence[Any]:
        if self._n <= 3:
            return (7, 8, 9)[:most]
        if self._fault == "panic":
            raise Panic
        if self._fault == "propose":
            raise IndexError("propose")
        if self._fault == "not ids":
            return [1 << 40, -3] if self._n % 2 else [2.5, None]
        return ()


class FaultyProposer(RecipeProposer):
    def __init__(self, vllm_config: Any) -> None:
        super().__init__(vllm_config)
        drafts = self._sequences._drafts
        plain_open, plain_propose, plain_close = drafts.open, drafts.propose, drafts.close

        def opened(row: Any) -> None:
            plain_open(row)
            fault = row.request.tenant
            if fault == "open":
                raise OSError("open")
            if fault in OF_A_REQUEST and isinstance(row.drafter, Drafter):
                row.drafter._sources = () if fault == "told" else (FaultySource(fault),)
            if fault == "told":
                del row.drafter._drafted

        def proposed(rows: Sequence[Any]) -> list[list[int]]:
            if any(row.request.tenant == OF_A_STEP for row in rows):
                raise ZeroDivisionError("step")
            return plain_propose(rows)

        def closed(row: Any) -> None:
            plain_close(row)
            if row.request.tenant == "close":
                raise RuntimeError("close")

        assert isinstance(drafts, BatchDrafter)
        drafts.open, drafts.propose, drafts.close = opened, proposed, closed  # type: ignore[method-assign]
