"""Answer one leased infer job. A warm label model takes milliseconds; a causal base that is loaded first, or writes
long answers, takes longer than a lease, so a thread heartbeats meanwhile."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from backend.domain.artifact.kolm_verify import KolmFileError
from backend.domain.jobs.runner_jobs import Claim, InferJob, InferResult, Progress
from gpu_runners.agent.feedback import InferenceFeedback
from gpu_runners.agent.lease_client import JobClient, LeaseLost
from gpu_runners.agent.training_worker import report
from gpu_runners.artifacts.loader import Loader
from gpu_runners.config import RunnerConfig
from gpu_runners.errors import JobFailed
from gpu_runners.http import Refused, Unreachable
from gpu_runners.models.bases import MINILM

log = logging.getLogger("kolm.runner")
MAX_INPUTS = 256
MAX_CHARS = 100_000


def loader_for(config: RunnerConfig) -> Loader:
    """Make a loader with the default base already in memory: the first answer then costs a merge, not an import."""
    loader = Loader(
        keyring=config.keyring, base_dir=config.base_dir, keep=config.keep_models, keep_bases=config.keep_bases
    )
    try:
        loader.base(MINILM)
    except (JobFailed, ImportError) as error:
        log.warning("the default base is not here: %s", error)
    return loader


def answer(claim: Claim, *, job: JobClient, loader: Loader, feedback: InferenceFeedback | None = None) -> None:
    try:
        with _beating(job, claim.lease_s):
            result = _infer(claim, job=job, loader=loader, feedback=feedback)
        report(lambda: job.report_success(result.to_json()), within_s=claim.lease_s)
    except JobFailed as failure:
        error = failure
        log.warning("job %s failed: %s", claim.job_id, error.code)  # its message goes to whoever asked
        report(lambda: job.report_failure(error), within_s=claim.lease_s)
    except (LeaseLost, Unreachable, Refused) as lost:
        log.warning("job %s is dropped: %s", claim.job_id, lost)


@contextmanager
def _beating(job: JobClient, lease_s: float) -> Iterator[None]:
    """Heartbeats every third of a lease. Whether the lease held is found out by the report."""
    ended = threading.Event()
    nothing = Progress(step=0, n_steps=0, loss=None, eta_s=None, checkpoint_sha256=None, note="")

    def beat() -> None:
        while not ended.wait(lease_s / 3):
            try:
                job.heartbeat(nothing, timeout_s=max(1.0, lease_s / 3))
            except Unreachable:
                continue
            except (LeaseLost, Refused):
                return

    thread = threading.Thread(target=beat, name="kolm-infer-heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _infer(claim: Claim, *, job: JobClient, loader: Loader, feedback: InferenceFeedback | None) -> InferResult:
    try:
        wanted = InferJob.from_json(claim.payload)
    except (ValueError, TypeError) as error:
        raise JobFailed(f"The job cannot be read: {error}.", code="invalid_job") from error
    if len(wanted.inputs) > MAX_INPUTS or not all(isinstance(t, str) and len(t) <= MAX_CHARS for t in wanted.inputs):
        raise JobFailed(f"A run takes at most {MAX_INPUTS} texts of {MAX_CHARS} characters.", code="too_large")
    try:
        model, load_ms = loader.get(wanted.artifact_sha256, lambda: job.get_blob(wanted.artifact_sha256))
    except KolmFileError as error:
        code = "artifact_untrusted" if error.exit_code == 3 else "artifact_altered"
        raise JobFailed(f"The runner does not load this artifact: {error}.", code=code) from error
    outputs = [dict(row) for row in model.predict(wanted.inputs)]
    if feedback is not None:
        feedback.note(model, wanted.grant)
    return InferResult(outputs=outputs, load_ms=load_ms)
