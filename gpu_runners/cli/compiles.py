"""`kolm check`, `kolm compile` and its `--estimate`, `kolm pull`, `kolm resume`."""

import contextlib
import hashlib
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from gpu_runners.cli.api import Connect, fail, told
from gpu_runners.cli.exit_codes import FAILED, GATE_FAILED, OK
from gpu_runners.cli.progress import Story, display_for, usd
from gpu_runners.kolm import Client, Unreadable, read_document

Row = dict[str, Any]
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_DEVICE = re.compile(r"(?i:con|prn|aux|nul|com[0-9]|lpt[0-9])")


def check(spec: str, *, as_json: bool = False) -> int:
    """The same validation as the API's, without a network. `as_json` prints the spec with every default filled in,
    ready to be posted."""
    from backend.domain.errors import InvalidSpec
    from backend.domain.spec.parsing import canonical_spec, parse_spec

    try:
        document = read_document(spec)
        parsed = parse_spec(document)
    except Unreadable as error:
        return fail(str(error))
    except InvalidSpec as error:
        print(f"{spec}: {error.message}", file=sys.stderr)
        for problem in error.problems:
            print(f"  {problem.pointer or '/'}: {problem.message}", file=sys.stderr)
        return FAILED
    print(json.dumps(canonical_spec(parsed)) if as_json else f"{spec}: {parsed.name} is a valid spec.")
    return OK


def compile_spec(
    spec: str,
    *,
    connect: Connect,
    wait: bool = True,
    out: str | None = None,
    idempotency_key: str | None = None,
    compare_last: bool = False,
    as_json: bool = False,
) -> int:
    """`compare_last` sets the K-score beside that of the newest artifact of the name, looked up before the start."""

    def act(client: Client) -> int:
        document = read_document(spec)
        before = _artifacts_of(client, document) if compare_last else []
        row = client.post("/v1/compiles", document, idempotency_key=idempotency_key)
        # a request that is repeated may find its own artifact there
        last = next((each for each in before if each["compile"] != row["id"]), None)
        with _told_apart(as_json):
            print_accepted(row)
        if not wait:
            return _print_json(row) if as_json else OK
        with _told_apart(as_json):
            follow(client, row["id"])
            code = _finish(client, client.get(f"/v1/compiles/{row['id']}"), out=out, last=last, compares=compare_last)
        if as_json:
            _print_json(client.get(f"/v1/compiles/{row['id']}") | ({"last_artifact": last} if compare_last else {}))
        return code

    return told(act, connect)


def resume(compile_id: str, *, connect: Connect, budget_microusd: int | None, wait: bool, as_json: bool) -> int:
    """Go on with a compile that ended without an artifact; what is done and paid for stays done."""

    def act(client: Client) -> int:
        body = {} if budget_microusd is None else {"budget_microusd": budget_microusd}
        row = client.post(f"/v1/compiles/{compile_id}/resume", body)
        with _told_apart(as_json):
            print(f"{row['id']} {row['name']}: {row['status']}", flush=True)
        code = OK
        if wait:
            with _told_apart(as_json):
                follow(client, row["id"], after=row["sequence"])
                code = _finish(client, client.get(f"/v1/compiles/{row['id']}"), out=None)
        if as_json:
            _print_json(client.get(f"/v1/compiles/{row['id']}"))
        return code

    return told(act, connect)


def follow(client: Client, compile_id: str, *, after: int = 0) -> None:
    """Show what happens until the compile has ended."""
    story = Story()
    with display_for(story) as display:
        for event in client.compiles.events(compile_id, after=after):
            display.take(event)


def estimate(spec: str, *, connect: Connect, as_json: bool = False) -> int:
    """What a compile would cost, step by step, and what the draft cache is expected to save of it. Starts nothing."""
    from gpu_runners.cli.draft_tables import saving_sentence

    def act(client: Client) -> int:
        answer = client.post("/v1/compiles/estimate?drafts=true", read_document(spec))
        if as_json:
            return _print_json(answer)
        for step in (*answer["steps"], {"step": "total", **answer["total"]}):
            low, expected, high = (usd(step[f"{name}_microusd"]) for name in ("low", "expected", "high"))
            print(f"{step['step']:<13}{expected:>10}  ({low} to {high})")
        is_within = "" if answer["within_budget"] else ", which is not enough"
        print(f"budget {usd(answer['budget_microusd'])}{is_within}")
        print(saving_sentence(answer["draft_cache"]))
        return OK

    return told(act, connect)


def pull(artifact: str, *, connect: Connect, out: str | None, as_json: bool = False) -> int:
    def act(client: Client) -> int:
        row = client.get(f"/v1/artifacts/{artifact}")
        path = _save(client, row, Path(out) if out else file_of(row["name"], row["version"]))
        if as_json:
            return _print_json(row | {"path": str(path)})
        print(f"{path} ({row['size_bytes']:,} bytes, K-score {row['k_score_ppm'] / 1e6:.3f})")
        return OK

    return told(act, connect)


def print_accepted(row: Row) -> None:
    print(f"{row['id']} {row['name']}: {row['status']}")
    total = (row.get("estimate") or {}).get("total")
    if total:
        low, expected, high = (usd(total[f"{name}_microusd"]) for name in ("low", "expected", "high"))
        print(f"estimate {expected} (from {low} to {high}), budget {usd(row['budget_microusd'])}", flush=True)


def _finish(client: Client, row: Row, *, out: str | None, last: Row | None = None, compares: bool = False) -> int:
    print(f"{row['name']} {row['status']}, spent {usd(row['spent_microusd'])}" + _score(row))
    if compares:
        print(_comparison(row, last))
    if row["status"] == "succeeded":
        artifact = client.get(f"/v1/artifacts/{row['artifact']}")
        path = _save(client, artifact, Path(out) if out else file_of(row["name"]))
        print(f"{path} ({artifact['size_bytes']:,} bytes)")
        return OK
    if row["status"] == "gate_failed":
        _print_gate(row.get("gate") or {})
        return GATE_FAILED
    failure = row.get("failure") or {}
    if failure:
        print(f"{failure.get('step') or 'compile'}: {failure.get('message')} ({failure.get('code')})", file=sys.stderr)
    return FAILED


def _score(row: Row) -> str:
    return "" if row.get("k_score_ppm") is None else f", K-score {row['k_score_ppm'] / 1e6:.3f}"


def _print_gate(gate: Row) -> None:
    for floor in gate.get("floors", []):
        print(f"  {'passed' if floor.get('passed') else 'FAILED'}  {floor.get('message', floor.get('name'))}")
    if gate.get("next_step"):
        print(f"next: {gate['next_step']}")


def file_of(name: Any, version: Any = None) -> Path:
    """The file of this folder that an artifact is saved as. The server says the name, so it may not lead elsewhere:
    raises Unreadable for what is no plain name (separators, a leading dot, control characters, Windows' devices)."""
    is_plain = isinstance(name, str) and _PLAIN_NAME.fullmatch(name) and not _DEVICE.fullmatch(name.split(".")[0])
    is_counted = version is None or (isinstance(version, int) and not isinstance(version, bool) and version >= 0)
    if not is_plain or not is_counted:
        raise Unreadable(
            f"The server names the artifact {str(name)[:80]!a}, version {str(version)[:20]!a}, which is no file name; "
            "choose one with --out."
        )
    return Path(f"{name}.kolm" if version is None else f"{name}-{version}.kolm")


def _save(client: Client, artifact: Row, path: Path) -> Path:
    """Write what has the announced digest, whole or not at all."""
    data = client.download(f"/v1/artifacts/{artifact['id']}/download")
    if hashlib.sha256(data).hexdigest() != artifact["sha256"]:
        raise Unreadable(f"The download of {artifact['id']} does not have the announced sha256; try `kolm pull` again.")
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except OSError as error:
        raise Unreadable(
            f"{path} cannot be written: {error.strerror or error}; choose another place with --out."
        ) from error
    return path


def _artifacts_of(client: Client, document: Any) -> list[Row]:
    """The two newest artifacts that have the spec's name."""
    name = document.get("name") if isinstance(document, dict) else None
    return list(client.get("/v1/artifacts", {"name": name, "limit": 2})["data"]) if isinstance(name, str) else []


def _comparison(row: Row, last: Row | None) -> str:
    if last is None:
        return f"There is no earlier artifact {row['name']!r} to compare with."
    was = last["k_score_ppm"]
    before = f"{was / 1e6:.3f} of version {last['version']} ({last['id']})"
    if row["k_score_ppm"] is None:
        return f"This compile has no K-score to set beside {before}."
    now = row["k_score_ppm"]
    return f"K-score {now / 1e6:.3f} against {before}: {(now - was) / 1e6:+.3f}"


def _told_apart(as_json: bool) -> "contextlib.AbstractContextManager[Any]":
    """With --json, standard output is the document's alone."""
    return contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()


def _print_json(value: Any) -> int:
    print(json.dumps(value, ensure_ascii=False), flush=True)
    return OK
