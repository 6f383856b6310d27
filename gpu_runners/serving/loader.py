"""From bytes to a model that answers: verified first, base checked, a few kept warm.

Nothing of an artifact is parsed, let alone run, before `kolm_verify.load_verified` has re-derived its bytes and checked
its signature.
"""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from backend.domain.kolm_verify import Kolm, load_verified, read_keyring
from gpu_runners.distill.bases import Base, open_base
from gpu_runners.errors import JobFailed
from gpu_runners.serving.engines import Runtime, load_runtime
from gpu_runners.serving.label_model import LabelModel


class Loader:
    """Models by the sha256 of their `.kolm`, least recently used out first; the base under them is loaded once."""

    def __init__(
        self, *, keyring: Path | None, base_dir: Path | None, allow_untrusted: bool = False, keep: int = 8
    ) -> None:
        self._keyring, self._base_dir, self._allow_untrusted, self._keep = keyring, base_dir, allow_untrusted, keep
        self._models: OrderedDict[str, LabelModel] = OrderedDict()
        self._runtimes: dict[str, tuple[Base, Runtime]] = {}

    def get(self, sha256: str, fetch: Callable[[], bytes]) -> tuple[LabelModel, int]:
        """(model, milliseconds it took to load; 0 when it was warm). Raises JobFailed for bytes that are not `sha256`,
        not trusted or do not fit."""
        if sha256 in self._models:
            self._models.move_to_end(sha256)
            return self._models[sha256], 0
        started = time.monotonic()
        data = fetch()
        if hashlib.sha256(data).hexdigest() != sha256:
            raise JobFailed(
                f"The blob store gave other bytes for {sha256[:12]}….", code="blob_mismatch", retryable=True
            )
        model = self.load(data)
        self._models[sha256] = model
        while len(self._models) > self._keep:
            self._models.popitem(last=False)
        return model, round((time.monotonic() - started) * 1000)

    def load(self, data: bytes) -> LabelModel:
        """Raises KolmFileError for what is altered or not trusted. The keyring is read each time: a key may have been
        revoked since."""
        keyring, _ = read_keyring(str(self._keyring)) if self._keyring is not None else (None, None)
        return self.model_of(load_verified(data, keyring, allow_untrusted=self._allow_untrusted))

    def model_of(self, kolm: Kolm) -> LabelModel:
        """The model of an artifact that `load_verified` gave out."""
        if kolm.manifest["task_type"] != "label":
            raise JobFailed(
                f"This runner answers label tasks, not {kolm.manifest['task_type']!r}.", code="unsupported_task"
            )
        wanted = kolm.manifest["base"]
        base, runtime = self.base(wanted["id"])
        if base.sha256 != wanted["sha256"]:
            raise JobFailed(
                f"The artifact needs the base {wanted['id']!r} with digest {wanted['sha256'][:12]}…; here it is "
                f"{base.sha256[:12]}….",
                code="base_mismatch",
            )
        return LabelModel.from_members(kolm.members, base=base, runtime=runtime)

    def base(self, name: str) -> tuple[Base, Runtime]:
        if name not in self._runtimes:
            base = open_base(name, base_dir=self._base_dir)
            self._runtimes[name] = (base, load_runtime(base))
        return self._runtimes[name]
