"""Recipe packs on a runner: read, checked and made ready for look-up once, shared by all answers of a task."""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence

from backend.domain.recipes.lookup import PackIndex
from backend.domain.recipes.pack import MAX_PACK_BYTES, InvalidPack, read_pack
from backend.domain.recipes.shapes import ShapeTable
from gpu_runners.models.protocol import PackRef, Rejected


class PackShelf:
    """The packs of one tokenizer, the last used ones. `token_texts` gives every id's bytes and is called once, with the
    first pack. Any thread."""

    def __init__(self, token_texts: Callable[[], Sequence[bytes]], *, tokenizer_sha256: str, keep: int = 256) -> None:
        self._read_texts, self._tokenizer_sha256, self._keep = token_texts, tokenizer_sha256, keep
        self._texts: Sequence[bytes] | None = None
        self._shapes: ShapeTable | None = None
        self._lock = threading.Lock()
        self._ready: OrderedDict[str, PackIndex] = OrderedDict()

    def has(self, ref: PackRef) -> bool:
        """Say whether a pack is ready, and nobody reads another one just now."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            return ref.key in self._ready and self._shapes is not None and not self._shapes.is_full
        finally:
            self._lock.release()

    def get(self, ref: PackRef) -> PackIndex:
        """Raises Rejected(bad_pack): not readable, altered, too large, or of another tokenizer."""
        with self._lock:
            if self._shapes is not None and self._shapes.is_full:  # one tenant's texts must not end another's shapes
                self._shapes = ShapeTable(list(self._texts or ()))
                self._ready.clear()
            index = self._ready.get(ref.key)
            if index is None:
                index = self._ready[ref.key] = self._build(ref)
            self._ready.move_to_end(ref.key)
            while len(self._ready) > self._keep:
                self._ready.popitem(last=False)
            return index

    def forget(self, key: str) -> None:
        with self._lock:
            self._ready.pop(key, None)

    def _build(self, ref: PackRef) -> PackIndex:
        data = _bytes(ref)
        if hashlib.sha256(data).hexdigest() != ref.key:
            raise _bad("its bytes are not those that its key names")
        try:
            pack = read_pack(data, tokenizer_sha256=self._tokenizer_sha256)
        except InvalidPack as error:
            raise _bad(str(error)) from error
        if self._texts is None:
            self._texts = self._read_texts()
            self._shapes = ShapeTable(list(self._texts))
        return PackIndex(pack, self._texts, shapes=self._shapes)


def _bytes(ref: PackRef) -> bytes:
    try:
        with ref.path.open("rb") as file:
            data = file.read(MAX_PACK_BYTES + 1)
    except OSError as error:
        raise _bad(f"it cannot be read ({type(error).__name__})") from error
    if len(data) > MAX_PACK_BYTES:
        raise _bad(f"it has more than {MAX_PACK_BYTES:,} bytes")
    return data


def _bad(why: str) -> Rejected:
    return Rejected(f"The recipe pack cannot be used: {why}. Leave it out, or compile again.", code="bad_pack")
