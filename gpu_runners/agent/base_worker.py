"""The looks at bases: a loop of its own, so that a preflight waits neither for a training nor for an answer. Its claims
carry what this runner says of itself."""

import logging
from pathlib import Path

from backend.domain.jobs.base_checks import MAX_BASES, CheckBaseJob, RunnerReport
from backend.domain.jobs.runner_jobs import Claim, RunnerJobKind
from gpu_runners.agent.device_probe import probe
from gpu_runners.agent.lease_client import JobClient, LeaseLost
from gpu_runners.agent.training_worker import report
from gpu_runners.config import RunnerConfig, hub_config
from gpu_runners.errors import JobFailed
from gpu_runners.http import Refused, Unreachable
from gpu_runners.models.base_checks import look_at_base
from gpu_runners.models.base_store.cache import BaseCache
from gpu_runners.models.bases import installed_bases

log = logging.getLogger("kolm.runner")


class Machine:
    """This machine as the runner reports it: the device is asked once, disk and bases each time."""

    def __init__(self, config: RunnerConfig) -> None:
        self._base_dir = config.base_dir
        self._kinds = [kind.value for kind in dict.fromkeys((*config.kinds, RunnerJobKind.CHECK_BASE))]
        self._device = probe()

    def report(self) -> RunnerReport:
        hub = hub_config()
        cache = BaseCache(hub.cache, limit=hub.cache_bytes)
        bases = dict.fromkeys((*installed_bases(self._base_dir), *cache.whole_bases()))
        return RunnerReport(
            kinds=self._kinds,
            room_bytes=_room(cache, hub.cache),
            bases=list(bases)[:MAX_BASES],
            is_offline=hub.is_offline,
            **self._device,
        )


def _room(cache: BaseCache, folder: Path) -> int | None:
    return cache.room() if folder.is_dir() else None


def look(claim: Claim, *, job: JobClient, base_dir: Path | None) -> None:
    """Look at the base of one leased job and report it."""
    try:
        try:
            wanted = CheckBaseJob.from_json(claim.payload)
        except (ValueError, TypeError) as error:
            raise JobFailed(f"The job cannot be read: {error}.", code="invalid_job") from error
        result = look_at_base(wanted, base_dir=base_dir, hub=hub_config())
        report(lambda: job.report_success(result.to_json()), within_s=claim.lease_s)
    except JobFailed as failure:
        refused = failure  # the name of an except clause ends with it
        report(lambda: job.report_failure(refused), within_s=claim.lease_s)
    except (LeaseLost, Unreachable, Refused) as lost:
        log.warning("job %s is dropped: %s", claim.job_id, lost)
