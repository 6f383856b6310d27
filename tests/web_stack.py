"""A web process of a test's or a bench's own, beside a Postgres and a Valkey of its own, on free ports. Nothing else
runs: no worker takes a compile, so that it stays as it was made, and what a bench measures is the web process.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from deploy.embedded.layout import Part
from deploy.embedded.ports import free_ports
from deploy.embedded.processes import stop, wait_until_ready
from deploy.embedded.stack import EmbeddedServices
from tests.acceptance.deployment import Deployment

_OURS = ("DATABASE_", "REDIS_", "KOLM_", "DJANGO_", "PYTEST_")
PARTS = (Part.POSTGRES, Part.VALKEY, Part.WEB)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebStack:
    services: EmbeddedServices
    deployment: Deployment

    @property
    def port(self) -> int:
        return self.services.stack.plan.ports[Part.WEB]

    def rss_mb(self) -> float:
        """What the web server's processes hold of the machine's memory, pages they share counted once (PSS)."""
        pid = self.services.stack.children[Part.WEB].pid
        processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        return sum(process.memory_full_info().pss for process in processes) / 1e6

    def cpu_s(self) -> float:
        pid = self.services.stack.children[Part.WEB].pid
        processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        return sum(sum(process.cpu_times()[:2]) for process in processes)

    def core_ns(self) -> dict[str, tuple[int, int]]:
        """For each thread of the web server, how long it ran on a core and how long it was ready and had none."""
        pid = self.services.stack.children[Part.WEB].pid
        found: dict[str, tuple[int, int]] = {}
        for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
            for thread in Path(f"/proc/{process.pid}/task").iterdir():
                with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                    ran, waited, _ = (thread / "schedstat").read_text().split()
                    found[thread.name] = int(ran), int(waited)
        return found

    def restart_web(self) -> None:
        """As a deploy does: asked to end (what does not end in time is killed), then started anew."""
        stack = self.services.stack
        stop([stack.children[Part.WEB]])
        stack.start_part(Part.WEB)
        wait_until_ready(stack.children[Part.WEB])


@contextmanager
def running_web(*, forgetful: bool = False, **more: str) -> Iterator[WebStack]:
    """`forgetful`: what is committed need not be on the disk; benches leave it out."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    variables = inherited | {
        "KOLM_PORT": str(free_ports(1)[0]),
        "KOLM_RATE_PER_KEY": "1000000",
        "KOLM_RATE_PER_TENANT": "1000000",
        **more,
    }
    services = EmbeddedServices(services=PARTS, variables=variables, forgetful=forgetful)
    try:
        services.stack.start()
        yield WebStack(services=services, deployment=Deployment(services.stack.plan))
    finally:
        services.close()


def machine() -> str:
    """One line about where this ran."""
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        "unknown CPU",
    )
    return f"{os.cpu_count()} shared cores ({cpu})"
