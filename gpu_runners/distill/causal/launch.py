"""One distillation over several processes: what `accelerate launch` starts on each.

    accelerate launch --config_file deploy/accelerate/ddp.yaml -m gpu_runners.distill.causal.launch \
        --job job.json --dataset pairs.jsonl --out folder [--base-dir DIR] [--start adapter] [--resume checkpoint]

`job.json` is a DistillCausalJob; what it says of sampling is left to a runner. The first process writes `adapter`,
`result.json` and, while it runs, `checkpoint` into the folder.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from backend.domain.jobs.causal_jobs import DistillCausalJob
from gpu_runners.errors import JobFailed


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    from gpu_runners.distill.causal.processes import started_processes
    from gpu_runners.distill.causal.train import distill_causal
    from gpu_runners.distill.checkpoint import Hooks, Snapshot
    from gpu_runners.models.causal_base import open_causal_base

    job = DistillCausalJob.from_json(json.loads(args.job.read_text("utf-8")))
    processes = started_processes()

    def on_checkpoint(state: Snapshot) -> int:
        if not processes.is_first:
            return state.n_bytes
        n_bytes = state.write(args.out / "checkpoint.new")
        (args.out / "checkpoint.new").replace(args.out / "checkpoint")
        return n_bytes

    try:
        blob, result = distill_causal(
            job,
            args.dataset.read_bytes(),
            base=open_causal_base(job.base_model, base_dir=args.base_dir),
            start=None if args.start is None else args.start.read_bytes(),
            resume=args.resume,
            hooks=Hooks(on_checkpoint=on_checkpoint),
            processes=processes,
        )
    except JobFailed as failure:
        print(f"{failure.code}: {failure.message}", file=sys.stderr)
        return 1
    if processes.is_first:
        (args.out / "adapter").write_bytes(blob)
        (args.out / "result.json").write_text(json.dumps(result.to_json(), indent=1) + "\n", "utf-8")
    processes.finish()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m gpu_runners.distill.causal.launch", description=__doc__)
    parser.add_argument("--job", type=Path, required=True)
    parser.add_argument("--dataset", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--base-dir", type=Path)
    parser.add_argument("--start", type=Path)
    parser.add_argument("--resume", type=Path)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
