"""`python -m tests.bench.recipe_llama [--rounds 3]`: drafts in llama-cpp-python, one request at a time, with
kolm-tiny-1 and a pack of its own answers to other prompts (the library is that of .venv-llama; a minute).

Ways in turn. "always" drafts whatever the measured cost says.
"""

import argparse
import hashlib
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from backend.domain.recipes.building import PackOptions, build_pack
from backend.domain.recipes.observing import Observed
from deploy.embedded.home import ROOT
from gpu_runners.causal.base import CausalBase, open_causal_base
from gpu_runners.recipes.tokens import token_texts
from gpu_runners.recipes.vllm_wire import write_token_texts
from gpu_runners.tiny_base.train import NAME, ensure
from tests.gpu_runners.recipes.tiny_task import prompts

PYTHON = ROOT / ".venv-llama" / "bin" / "python"
MOST = 48
WAYS: dict[str, dict[str, Any]] = {
    "cold": {"pack": ""},
    "pack, always": {"kinds": ["pack"], "is_gated": False},
    "pack": {"kinds": ["pack"], "is_gated": True},
    "pack, prompt": {"kinds": ["pack", "prompt"], "is_gated": True},
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.recipe_llama", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    if not PYTHON.exists():
        print("there is no llama.cpp here: `make setup-llama`", file=sys.stderr)
        return 1
    base = open_causal_base(NAME, base_dir=ensure(ROOT / "build" / "bases").parent)
    with tempfile.TemporaryDirectory(prefix="kolm-bench-") as name:
        folder = Path(name)
        work = _work(base, folder)
        asked = work.pop("prompts")
        observed = _answers(work | {"prompts": asked[:60]}, folder)["answers"]
        work |= _pack(base, observed, folder) | {"prompts": asked[60:]}
        told: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
        for _ in range(rounds):
            for way, fields in WAYS.items():
                told[way].append(_answers(work | fields, folder))
    print("| way | tokens per step | drafted | accepted | tokens a second | answers that differ |\n" + "|---" * 6 + "|")
    for way, answers in told.items():
        print(_row(way, answers, told["cold"][0]["answers"]))
    return 0


def _row(way: str, rounds: list[dict[str, Any]], truth: list[list[int]]) -> str:
    n_tokens = sum(map(len, truth))
    drafted, accepted = (sum(counts[i] for counts in rounds[-1]["by_source"].values()) for i in (0, 1))
    seconds = statistics.median(one["seconds"] for one in rounds)
    n_different = sum(a != b for a, b in zip(rounds[-1]["answers"], truth, strict=True))
    per_step = n_tokens / rounds[-1]["steps"]
    return f"| {way} | {per_step:.2f} | {drafted} | {accepted} | {n_tokens / seconds:.0f} | {n_different} |"


def _work(base: CausalBase, folder: Path) -> dict[str, Any]:
    model = folder / "tiny.gguf"
    _run("tests.gpu_runners.recipes.tiny_gguf", str(base.folder), str(model))
    write_token_texts(token_texts(base), folder / "texts.json")
    return {
        "model": str(model),
        "prompts": prompts(base, 120),
        "most": MOST,
        "end": base.eos_ids[0],
        "pack": "",
        "token_texts": str(folder / "texts.json"),
        "tokenizer_sha256": base.tokenizer_sha256,
        "sampling": {},
    }


def _pack(base: CausalBase, answers: list[list[int]], folder: Path) -> dict[str, Any]:
    data = build_pack(
        [Observed(tokens=tuple(one), agreed=(1,) * len(one), n_samples=1) for one in answers],
        token_texts(base),
        tokenizer_sha256=base.tokenizer_sha256,
        base=base.name,
        options=PackOptions(),
        end_ids=base.eos_ids,
    ).to_bytes()
    path = folder / "recipes.json"
    path.write_bytes(data)
    return {"pack": str(path), "pack_sha256": hashlib.sha256(data).hexdigest()}


def _answers(work: dict[str, Any], folder: Path) -> dict[str, Any]:
    (folder / "work.json").write_text(json.dumps(work))
    told: dict[str, Any] = json.loads(_run("tests.gpu_runners.recipes.llama_answers", str(folder / "work.json")))
    return told


def _run(module: str, *arguments: str) -> str:
    environment = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}
    command = [str(PYTHON), "-m", module, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
