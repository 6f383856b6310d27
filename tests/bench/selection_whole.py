"""One whole `select` on a large pool: CPU seconds by stage, and the peak of the process.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python -m tests.bench.selection_whole [N] [METHOD]

The rows are those of `selection_speed_pool`; the peak holds them, the embedder that made them and torch too.
"""

import resource
import sys
import time

from backend.domain.selection.select import select
from tests.bench.selection_speed_pool import make_pool


def main(n: int, method: str) -> None:
    pool = make_pool(n)
    start, stages = time.process_time(), []

    def tell(stage: str, done: int, total: int) -> None:
        if not stages or stages[-1] != stage:
            stages.append(stage)
            print(f"{time.process_time() - start:7.1f} s  {stage}", flush=True)

    report = select(pool.rows, pool.scores, k=pool.k, method=method, on_progress=tell).report
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{time.process_time() - start:7.1f} s  {report.k_actual:,} of {n:,} by {report.method}, peak {peak_mb:,.0f} MB"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000, sys.argv[2] if len(sys.argv) > 2 else "auto")
