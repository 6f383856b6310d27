"""The clients' processes: two servers here, a process of .venv-clients for each client, and what it reports."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_runners.distill.label.train import distill
from gpu_runners.models.bases import MINILM, open_base
from tests.gpu_runners.serving.served_students import serving
from tests.gpu_runners.small_orders import spans_kolm
from tests.gpu_runners.small_task import Trained, jsonl, kolm_of, small_job, task_rows

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-clients" / "bin" / "python"
MISSING = "no clients here: `make setup-clients` installs litellm, langchain-openai and instructor into .venv-clients"
CLIENTS = ("openai", "instructor", "langchain", "litellm")
MOST_S = 240.0


@dataclass(frozen=True, kw_only=True)
class Report:
    """The checks of one client: (what was tried, its fault or "")."""

    package: str
    version: str
    rows: list[tuple[str, str]]


@contextmanager
def small_servers(folder: Path) -> Iterator[Path]:
    """`kolm serve` of a span student and of a label student; gives the file that says where they are."""
    data = jsonl(task_rows(10))
    job = small_job(data)
    blob, result = distill(job, data, base=open_base(MINILM))
    mails_kolm = kolm_of(Trained(job=job, dataset=data, blob=blob, result=result))
    with serving(spans_kolm()) as (orders, _), serving(mails_kolm) as (mails, model):
        mail = task_rows(1, start=11)[1]["input"]
        work = {
            "orders": f"{str(orders.base_url).rstrip('/')}/v1",
            "mails": f"{str(mails.base_url).rstrip('/')}/v1",
            "mails_model": mails.get("/v1/models").json()["data"][0]["id"],
            "mail": mail,
            "label": model.predict([mail])[0]["label"],  # type: ignore[typeddict-item]
        }
        path = folder / "work.json"
        path.write_text(json.dumps(work), encoding="utf-8")
        yield path


def try_client(name: str, work: Path) -> Report:
    """Run one client's checks in its own Python, without this process's environment."""
    kept = {key: os.environ[key] for key in ("PATH", "LANG", "TMPDIR") if key in os.environ}
    environment = kept | {"HOME": str(work.parent), "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [str(PYTHON), "-m", f"tests.clients.try_{name}", str(work)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=MOST_S,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{name} ended with {done.returncode}: {done.stderr[-2000:]}")
    value: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    rows = [(row["check"], row["fault"]) for row in value["rows"]]
    return Report(package=value["package"], version=value["version"], rows=rows)
