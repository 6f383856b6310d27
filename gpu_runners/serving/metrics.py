"""`/metrics` in Prometheus' text format. Labels hold no tenant, no artifact and no text of a request."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpu_runners.serving.registration import Registration, UsageReporter
from gpu_runners.serving.server_context import ServerContext

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_GAUGES = frozenset({"running", "waiting"})


def metrics(context: ServerContext, registration: Registration, usage: UsageReporter, *, now: float) -> str:
    """`now` is of the clock that `usage` keeps (monotonic)."""
    lines = [*_of_requests(context), *_of_engines(context), *_of_adapters(context)]
    journal = context.journal
    lag_s = now - usage.last_booked_at if journal.n_unbooked else 0.0
    lines += [
        *_metric("usage_rows_booked_total", "counter", [({}, usage.n_booked)]),
        *_metric("usage_rows_refused_total", "counter", [({}, journal.n_refused)]),
        *_metric("journal_unbooked", "gauge", [({}, journal.n_unbooked)]),
        *_metric("journal_open", "gauge", [({}, journal.n_open)]),
        *_metric("journal_bytes", "gauge", [({}, journal.n_bytes)]),
        *_metric("journal_full", "gauge", [({}, int(journal.is_full))]),
        *_metric("journal_lag_seconds", "gauge", [({}, round(lag_s, 3))]),
        *_metric("registered", "gauge", [({}, int(bool(registration.server) and not registration.n_failures))]),
        *_metric("draining", "gauge", [({}, int(context.is_draining))]),
    ]
    return "\n".join(lines) + "\n"


def _of_requests(context: ServerContext) -> Iterator[str]:
    yield from _metric("running", "gauge", [({}, context.scheduler.n_running)])
    yield from _metric("waiting", "gauge", [({}, context.scheduler.n_waiting)])
    yield from _metric(
        "refused_total", "counter", [({"code": code}, n) for code, n in sorted(context.refusals.items())]
    )
    for name, n in sorted(context.totals.items()):
        yield from _metric(f"{name}_total", "counter", [({}, n)])


def _of_engines(context: ServerContext) -> Iterator[str]:
    engines = context.engines.running()
    names = sorted({name for engine in engines.values() for name in engine.counters()})
    for name in names:
        rows = [({"base": base}, engine.counters().get(name, 0)) for base, engine in engines.items()]
        is_gauge = name in _GAUGES
        yield from _metric(f"engine_{name}{'' if is_gauge else '_total'}", "gauge" if is_gauge else "counter", rows)
    abouts = {base: engine.about for base, engine in engines.items()}
    abouts |= context.students.about() if context.students is not None else {}
    about = [({"base": base} | _labels(one), 1) for base, one in abouts.items()]
    yield from _metric("engine_info", "gauge", about)


def _of_adapters(context: ServerContext) -> Iterator[str]:
    store = context.store
    yield from _metric("adapters", "gauge", [({"tier": "ram"}, store.n_in_ram), ({"tier": "disk"}, store.n_on_disk)])
    tiers: list[tuple[dict[str, str], float]] = [
        ({"tier": "ram"}, store.ram_bytes),
        ({"tier": "disk"}, store.disk_bytes),
    ]
    yield from _metric("adapter_bytes", "gauge", tiers)
    for name, n in store.counts.items():
        yield from _metric(f"adapters_{name}_total", "counter", [({}, n)])


def _metric(name: str, kind: str, rows: Iterable[tuple[Mapping[str, str], float]]) -> Iterator[str]:
    yield f"# TYPE kolm_server_{name} {kind}"
    for labels, value in rows:
        inside = ",".join(f'{label}="{_escape(text)}"' for label, text in labels.items())
        yield f"kolm_server_{name}{{{inside}}} {value}" if inside else f"kolm_server_{name} {value}"


def _labels(about: Mapping[str, Any]) -> dict[str, str]:
    return {re.sub(r"\W", "_", str(key)): str(value) for key, value in about.items() if key != "base"}


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
