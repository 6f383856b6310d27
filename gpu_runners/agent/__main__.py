"""`python -m gpu_runners.agent`: a runner. Three loops claim jobs over HTTP: one answers `infer` from warm models, one
hands `distill` and `evaluate` to a child process, one looks at bases; so neither an answer nor a look waits for a
training.

SIGTERM and SIGINT: no new claims; a training hands over its last checkpoint and goes back to the queue; then the
process ends.
"""

import logging
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from backend.domain.jobs.base_checks import RunnerReport
from backend.domain.jobs.runner_jobs import Claim, RunnerJobKind
from backend.domain.log_text import guard_logs
from gpu_runners.agent.isolation import Child
from gpu_runners.agent.lease_client import RunnerClient
from gpu_runners.agent.training_worker import Lease, report, work_on
from gpu_runners.config import BadSetting, RunnerConfig, read_config
from gpu_runners.errors import JobFailed
from gpu_runners.heartbeat import keep_beating
from gpu_runners.http import Refused, Unreachable, backoff_s

log = logging.getLogger("kolm.runner")
_STOP_WITHIN_S = 15.0
_LOOK_EVERY_S = 1.0
_AT_ONCE = {RunnerJobKind.INFER, RunnerJobKind.CHECK_BASE}  # somebody waits for these
# who trains looks at bases too, whether or not it was told so: one that does neither need not answer for them
_NEEDS_BASES = {
    RunnerJobKind.CHECK_BASE,
    RunnerJobKind.DISTILL,
    RunnerJobKind.DISTILL_CAUSAL,
    RunnerJobKind.DISTILL_SPANS,
}


def main() -> int:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    guard_logs()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        config = read_config()
    except BadSetting as error:
        print(f"runner: {error}", file=sys.stderr)
        return 2
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    keep_beating()
    return 0 if run(config, stop) else 1


def run(config: RunnerConfig, stop: threading.Event) -> bool:
    """Work until `stop` is set and the jobs at work are handed back. False where a loop ended by itself: whoever
    supervises this process starts it again."""
    training = [kind for kind in config.kinds if kind not in _AT_ONCE]
    loops: list[JobLoop] = []
    if training:
        loops.append(JobLoop(config, kinds=training, stop=stop, name="train", prepare=_training))
    if RunnerJobKind.INFER in config.kinds:
        loops.append(JobLoop(config, kinds=[RunnerJobKind.INFER], stop=stop, name="infer", prepare=_inferring))
    if _NEEDS_BASES & set(config.kinds):
        loops.append(JobLoop(config, kinds=[RunnerJobKind.CHECK_BASE], stop=stop, name="look", prepare=_looking))
    log.info("runner %s claims %s from %s", config.name, ", ".join(config.kinds), config.api_url)
    for loop in loops:
        loop.start()
    while not (is_asked := stop.wait(_LOOK_EVERY_S)) and all(loop.is_alive for loop in loops):
        pass
    stop.set()
    for loop in loops:
        loop.finish(within_s=_STOP_WITHIN_S)
    log.info("runner %s has stopped", config.name)
    return is_asked


Handle = Callable[[RunnerClient, Claim], None]
Prepare = Callable[[RunnerConfig, threading.Event], "Prepared"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """`describe` is what the claims of a loop say of this runner, where they say anything."""

    handle: Handle
    clean: Callable[[], None] = lambda: None
    describe: Callable[[], RunnerReport] | None = None


class JobLoop:
    """One thread that claims and works on one job at a time. `prepare` makes what it needs, inside the thread."""

    def __init__(
        self,
        config: RunnerConfig,
        *,
        kinds: Sequence[RunnerJobKind],
        stop: threading.Event,
        name: str,
        prepare: Prepare,
    ) -> None:
        self._config, self._kinds, self._stop, self._prepare = config, kinds, stop, prepare
        self._idle = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"kolm-{name}", daemon=True)
        self._clean: Callable[[], None] = lambda: None

    def start(self) -> None:
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def finish(self, *, within_s: float) -> None:
        """Wait for the job at work. A loop that waits in a long poll is left behind: should the server answer it in
        this very moment, that lease runs out unused."""
        deadline = threading.Event()
        for _ in range(int(within_s / 0.05)):
            if self._idle.is_set() or not self._thread.is_alive():
                break
            deadline.wait(0.05)
        self._clean()

    def _run(self) -> None:
        prepared = self._prepare(self._config, self._stop)
        handle, self._clean = prepared.handle, prepared.clean
        rng, failures = random.Random(), 0
        with RunnerClient(api_url=self._config.api_url, token=self._config.token, name=self._config.name) as client:
            while not self._stop.is_set():
                self._idle.set()
                try:
                    about = _about(prepared)
                    claim = client.claim(self._kinds, wait_s=self._config.wait_s, about=about)
                except (Unreachable, Refused) as error:
                    if failures in (0, 3) or failures % 20 == 0:
                        log.warning("no claim: %s", error)
                    self._stop.wait(backoff_s(failures, rng=rng))
                    failures += 1
                    continue
                failures = 0
                if claim is not None:
                    self._idle.clear()
                    log.info("job %s: %s, attempt %d", claim.job_id, claim.kind, claim.attempt)
                    self._work(claim, handle, client)
        self._idle.set()

    def _work(self, claim: Claim, handle: Handle, client: RunnerClient) -> None:
        """A fault that is this runner's own (its disk, a library) costs a job an attempt and never the loop. Who ran
        into it takes no other job to train for the length of a lease, and leaves them to runners that are well."""
        try:
            handle(client, claim)
        except Exception as fault:
            log.exception("job %s: a fault of this runner", claim.job_id)
            self._clean()
            text = f"The runner met a fault of its own ({type(fault).__name__})."
            error = JobFailed(text, code="runner_crashed", retryable=True)
            report(lambda: client.job(claim).report_failure(error), within_s=claim.lease_s)
            self._stop.wait(0.0 if claim.kind in _AT_ONCE else claim.lease_s)


def _about(prepared: Prepared) -> RunnerReport | None:
    """Describe this runner; nothing where its disk does not let it look."""
    try:
        return None if prepared.describe is None else prepared.describe()
    except OSError as error:
        log.warning("this runner cannot tell what it holds: %s", error)
        return None


def _training(config: RunnerConfig, stop: threading.Event) -> Prepared:
    child = Child()
    child.ensure_started()  # its imports run while the first compile asks the teacher

    def handle(client: RunnerClient, claim: Claim) -> None:
        lease = Lease(job=client.job(claim), claim=claim, outage_s=config.outage_s)
        work_on(
            claim,
            lease=lease,
            child=child,
            base_dir=config.base_dir,
            stopping=stop.is_set,
            still_s=config.still_s,
        )
        if not stop.is_set():
            child.ensure_started()  # where the last one was killed, the next job need not wait for the imports

    return Prepared(handle=handle, clean=child.kill)


def _looking(config: RunnerConfig, stop: threading.Event) -> Prepared:
    from gpu_runners.agent.base_worker import Machine, look

    machine = Machine(config)

    def handle(client: RunnerClient, claim: Claim) -> None:
        look(claim, job=client.job(claim), base_dir=config.base_dir)

    return Prepared(handle=handle, describe=machine.report)


def _inferring(config: RunnerConfig, stop: threading.Event) -> Prepared:
    from gpu_runners.agent.feedback import InferenceFeedback
    from gpu_runners.agent.inference_worker import answer, loader_for

    loader, feedback = loader_for(config), InferenceFeedback(token=config.token, name=config.name)

    def handle(client: RunnerClient, claim: Claim) -> None:
        answer(claim, job=client.job(claim), loader=loader, feedback=feedback)
        feedback.report(client)

    return Prepared(handle=handle)


if __name__ == "__main__":
    # the child is found by module name from the folder that holds this package, wherever the runner was started
    sys.path.insert(0, str(Path(__file__).parents[2]))
    raise SystemExit(main())
