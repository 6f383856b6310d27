"""`python -m gpu_runners.tiny_base --out DIR`: kolm-tiny-1 in DIR, from this package or trained (`--train`)."""

import argparse
import shutil
from pathlib import Path

from gpu_runners.tiny_base.train import SHIPPED, ensure


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m gpu_runners.tiny_base", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="the folder that KOLM_BASE_DIR names")
    parser.add_argument("--train", action="store_true", help="train it here: a quarter of an hour of one core")
    parser.add_argument("--ship", action="store_true", help="then put it into this package")
    options = parser.parse_args()
    made = ensure(options.out, say=lambda line: print(line, flush=True), is_trained_here=options.train)
    if options.ship:
        shutil.copytree(made, SHIPPED, dirs_exist_ok=True)
    print(f"{made} is ready; KOLM_BASE_DIR={made.parent}", flush=True)


if __name__ == "__main__":
    main()
