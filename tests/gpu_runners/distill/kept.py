"""The checkpoints of a run, kept as files."""

from pathlib import Path

from gpu_runners.distill.checkpoint import Snapshot


class Kept(list[Path]):
    """The hook `on_checkpoint`; the list of what it has written."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def __call__(self, state: Snapshot) -> int:
        path = self._folder / f"checkpoint-{len(self)}"
        n_bytes = state.write(path)
        assert n_bytes == path.stat().st_size
        self.append(path)
        return n_bytes
