"""The process in which every job but infer runs, apart from the agent so that a crash or an out-of-memory
kill is a report, not a death.

It reads JSON lines on stdin, a job, `{"stop": true}` or `{"handed_over_s": 2.5}` each, and writes JSON lines (events)
on what was its stdout; everything that libraries print goes to stderr. It dies with its parent: by PR_SET_PDEATHSIG on
Linux, by the end of stdin everywhere. It never sees the network or a token: its inputs and outputs are files that the
parent fetched and will upload.
"""

import ctypes
import json
import os
import queue
import signal
import sys
import threading
from pathlib import Path
from typing import Any, TextIO

from backend.domain.jobs.causal_jobs import DistillCausalJob, EvaluateCausalJob
from backend.domain.jobs.recipe_jobs import PackRecipesJob
from backend.domain.jobs.runner_jobs import DistillJob, EvaluateJob, RunnerJobKind, SelectJob
from backend.domain.jobs.span_jobs import DistillSpansJob, EvaluateSpansJob
from backend.domain.log_text import guard_logs
from gpu_runners.errors import JobFailed
from gpu_runners.memory import give_memory_back

_PR_SET_PDEATHSIG = 1


def main() -> None:
    events = _claim_stdout()
    _die_with_parent()
    guard_logs()
    requests: queue.Queue[dict[str, Any]] = queue.Queue()
    stop, line = threading.Event(), Line()
    threading.Thread(target=_read_commands, args=(requests, stop, line), daemon=True).start()
    from gpu_runners.agent import jobs  # the model libraries: some seconds

    jobs.warm_up()
    _emit(events, {"event": "ready"})
    while True:
        _answer(jobs, requests.get(), events, stop, line)
        give_memory_back()


def _answer(jobs: Any, request: dict[str, Any], events: TextIO, stop: threading.Event, line: "Line") -> None:
    """Work on one job and say what came of it."""
    try:
        line.sent_s = 0.0
        result = _work(jobs, request, events, stop, line)
    except JobFailed as failure:
        _emit(
            events,
            {"event": "failed", "code": failure.code, "message": failure.message, "retryable": failure.retryable},
        )
    except Exception as error:
        if not _is_out_of_memory(error):
            raise
        _emit(
            events,
            {
                "event": "failed",
                "code": "out_of_memory",
                "message": "The job did not fit in this runner's memory; give it less at once (a training's "
                "train.batch_size and train.max_tokens, a selection's rows), or take a smaller base.",
                "retryable": True,
            },
        )
    else:
        _emit(events, {"event": "done"} | result)


def _is_out_of_memory(error: Exception) -> bool:
    """Tell whether it is Python's error or torch's; a job that did not load torch cannot have raised torch's."""
    torch = sys.modules.get("torch")
    return isinstance(error, MemoryError) or (torch is not None and isinstance(error, torch.OutOfMemoryError))


class Line:
    """The way of checkpoints to the blob store. `sent_s`: what handing over the last one took, None while one is under
    way."""

    def __init__(self) -> None:
        self.sent_s: float | None = 0.0


def _work(
    jobs: Any, request: dict[str, Any], events: TextIO, stop: threading.Event, line: Line | None = None
) -> dict[str, Any]:
    training = {"should_stop": stop.is_set, "line": line or Line()}
    folder = Path(request["folder"])
    base_dir = Path(request["base_dir"]) if request["base_dir"] else None

    def emit(event: dict[str, Any]) -> None:
        _emit(events, event)

    try:
        if request["kind"] == RunnerJobKind.DISTILL:
            job = DistillJob.from_json(request["payload"])
            return dict(jobs.distill_files(job, folder=folder, base_dir=base_dir, emit=emit, **training))
        if request["kind"] == RunnerJobKind.DISTILL_CAUSAL:
            causal = DistillCausalJob.from_json(request["payload"])
            return dict(jobs.distill_causal_files(causal, folder=folder, base_dir=base_dir, emit=emit, **training))
        if request["kind"] == RunnerJobKind.EVALUATE_CAUSAL:
            asked = EvaluateCausalJob.from_json(request["payload"])
            return dict(jobs.evaluate_files_causal(asked, folder=folder, base_dir=base_dir, emit=emit))
        if request["kind"] == RunnerJobKind.DISTILL_SPANS:
            spans = DistillSpansJob.from_json(request["payload"])
            return dict(jobs.distill_spans_files(spans, folder=folder, base_dir=base_dir, emit=emit, **training))
        if request["kind"] == RunnerJobKind.EVALUATE_SPANS:
            heldout = EvaluateSpansJob.from_json(request["payload"])
            return dict(jobs.evaluate_spans_files(heldout, folder=folder, base_dir=base_dir, emit=emit))
        if request["kind"] == RunnerJobKind.PACK_RECIPES:
            packing = PackRecipesJob.from_json(request["payload"])
            return dict(jobs.pack_recipes_files(packing, folder=folder, base_dir=base_dir, emit=emit))
        if request["kind"] == RunnerJobKind.SELECT:
            from gpu_runners.jobs.selection import select_files

            wanted = SelectJob.from_json(request["payload"])
            return dict(select_files(wanted, folder=folder, base_dir=base_dir, emit=emit, should_stop=stop.is_set))
        return dict(
            jobs.evaluate_files(EvaluateJob.from_json(request["payload"]), folder=folder, base_dir=base_dir, emit=emit)
        )
    except (ValueError, TypeError) as error:
        raise JobFailed(
            f"The job cannot be read or worked on ({type(error).__name__}: {error}).", code="invalid_job"
        ) from error


def _read_commands(requests: "queue.Queue[dict[str, Any]]", stop: threading.Event, line: Line) -> None:
    for text in sys.stdin:
        command = json.loads(text)
        if command.get("stop"):
            stop.set()
        elif "handed_over_s" in command:
            line.sent_s = command["handed_over_s"]
        else:
            stop.clear()
            requests.put(command)
    os._exit(0)  # the parent is gone: nobody will read what this process computes


def _claim_stdout() -> TextIO:
    events = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    return events


def _die_with_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _emit(events: TextIO, event: dict[str, Any]) -> None:
    try:
        events.write(json.dumps(event) + "\n")
    except BrokenPipeError:
        os._exit(0)


if __name__ == "__main__":
    main()
