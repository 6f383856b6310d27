"""The rules by which adapters and checkpoints travel from a runner to the blob store: in parts, and how often.

A blob of more than one part is sent as parts of PART_BYTES (the last one shorter), one request each, in order, every
part under its own digest and the whole under the blob's. Neither side holds more than a part, a heartbeat fits between
two, and a transfer that broke off goes on at the part where it did.

How often a checkpoint is made follows from its size and from what the last one cost (`pause_s`).
"""

from dataclasses import dataclass
from enum import StrEnum

PART_BYTES = 8 << 20
MAX_BLOB_BYTES = 2 << 30  # the default of KOLM_MAX_BLOB_BYTES, and the most that a `.kolm` may have
# what a file of `gpu_runners.distill.checkpoint` begins with behind the eight bytes of its header's length
CHECKPOINT_MARK = b'{"__metadata__":{"kolm":'

MADE_SHARE = 0.02  # of the time: a training stands still while its checkpoint is written
SENT_SHARE = 0.2  # of the time: the line is busy, the training is not
BYTES_A_S = 5_000_000  # on the mean: 40 Mbit/s, and 18 GB an hour of the blob store's disk


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """One blob on its way. `owner` is the job's id."""

    owner: str
    sha256: str
    n_bytes: int

    @property
    def n_parts(self) -> int:
        return -(-self.n_bytes // PART_BYTES)

    def part_bytes(self, number: int) -> int:
        """Bytes of part `number`, from 0; 0 where there is none. 20 MiB: 8, 8 and 4 MiB."""
        if not 0 <= number < self.n_parts:
            return 0
        return min(PART_BYTES, self.n_bytes - number * PART_BYTES)

    def n_whole_parts(self, n_kept_bytes: int) -> int:
        """The number of the next part where so many bytes are kept: a part that broke off is sent again."""
        return self.n_parts if n_kept_bytes >= self.n_bytes else n_kept_bytes // PART_BYTES


def pause_s(*, every_s: float, n_bytes: int, made_s: float, sent_s: float) -> float:
    """Seconds from one checkpoint to the next: at least `every_s`, and so many that making the last one (`made_s`) was
    at most 2 % of them, handing it over (`sent_s`) at most 20 %, and its bytes at most 5 MB a second.

    4 MB in 0.1 s: 20 s. 283 MB (Qwen2.5-7B, rank 8) made in 0.7 s and sent in 3 s: 57 s. 1.13 GB (rank 32) made in 3 s
    and sent in 10 s: 226 s; over a line of 100 Mbit/s, in 90 s: 450 s."""
    return max(every_s, made_s / MADE_SHARE, sent_s / SENT_SHARE, n_bytes / BYTES_A_S)


class Unkept(StrEnum):
    """The reason why a checkpoint is not in the blob store."""

    TOO_LARGE = "too_large"  # more than KOLM_MAX_BLOB_BYTES
    STORE_FULL = "store_full"
    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    RUNNER_DISK = "runner_disk"  # it could not even be written on the runner


UNKEPT_WHY = {
    Unkept.TOO_LARGE: "it is larger than this installation keeps (KOLM_MAX_BLOB_BYTES)",
    Unkept.STORE_FULL: "the blob store is full",
    Unkept.UNREACHABLE: "the blob store could not be reached",
    Unkept.REFUSED: "the blob store refused it",
    Unkept.RUNNER_DISK: "the runner's disk did not take it",
}
