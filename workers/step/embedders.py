"""The embedder of a compile: the one that its spec names, and from slicing on the one that placed its slices, whatever
the installation's default has become since."""

from backend.domain.errors import OurError
from backend.domain.planning.step_outputs import SlicingOut
from workers.embedding.protocol import Embedder
from workers.embedding.sentence import load_embedder, name_of
from workers.step.durable import CompileRun


class EmbedderChanged(OurError):
    code = "embedder_changed"


def embedder_of(run: CompileRun) -> Embedder:
    """Raises EmbedderChanged where the vectors that this compile has could not be compared with new ones, and
    EmbedderMissing where this worker has not its files."""
    placed = _identity_of_slices(run)
    embedder = load_embedder(name_of(placed) if placed else run.spec.embedder)
    if placed and embedder.identity != placed:
        raise EmbedderChanged(
            f"The embedder {name_of(placed)!r} has other weights or settings than when this compile began. Put its "
            "earlier files back and resume the compile, or start it again."
        )
    return embedder


def _identity_of_slices(run: CompileRun) -> str:
    """The identity of the embedder that placed the slices, "" until slicing is finished."""
    try:
        return run.output(SlicingOut).embedder
    except KeyError:
        return ""
