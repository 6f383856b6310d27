"""The error that ends a runner's job, as the report over the lease API has it: a stable code, one sentence, and whether
another attempt may help. An export on the reader's machine is reported to nobody: its refusal is a sentence alone."""

from backend.domain.errors import OurError


class JobFailed(OurError):
    code = "job_failed"

    def __init__(self, message: str, *, code: str, retryable: bool = False) -> None:
        super().__init__(message, code=code)
        self.retryable = retryable


class JobStopped(JobFailed):
    """The runner is going away; the last checkpoint has been handed over and another runner may go on from it."""

    def __init__(self) -> None:
        super().__init__("The runner was stopped; the job can be resumed.", code="runner_stopping", retryable=True)


class JobPreempted(JobFailed):
    """The job gives its runner to another tenant's, after its checkpoint, and goes on at its next turn."""

    def __init__(self) -> None:
        super().__init__("The job gave way to another one; it goes on later.", code="preempted", retryable=True)


class ExportRefused(Exception):
    """The artifact or the folder does not allow an export; the message says what to do."""
