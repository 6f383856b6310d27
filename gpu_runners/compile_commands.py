"""`kolm check`, `kolm compile` and its `--estimate`, `kolm pull`."""

import json
import os
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any

from gpu_runners.api_client import Api, ApiError
from gpu_runners.progress import Story, display_for, usd

EXIT_OK, EXIT_FAILED, EXIT_GATE_FAILED = 0, 1, 4


def check(spec: str, *, as_json: bool = False) -> int:
    """The same validation as the API's, without a network. `as_json` prints the spec with every default filled in,
    ready to be posted."""
    from backend.domain.errors import InvalidSpec
    from backend.domain.spec import canonical_spec, parse_spec

    try:
        document = read_document(spec)
        parsed = parse_spec(document)
    except Unreadable as error:
        return _fail(str(error))
    except InvalidSpec as error:
        print(f"{spec}: {error.message}", file=sys.stderr)
        for problem in error.problems:
            print(f"  {problem.pointer or '/'}: {problem.message}", file=sys.stderr)
        return EXIT_FAILED
    print(json.dumps(canonical_spec(parsed)) if as_json else f"{spec}: {parsed.name} is a valid spec.")
    return EXIT_OK


def compile_spec(
    spec: str, *, api: str, key: str | None, wait: bool, out: str | None, idempotency_key: str | None
) -> int:
    try:
        document = read_document(spec)
        with Api(url=api, key=key) as client:
            row = client.post("/v1/compiles", document, idempotency_key=idempotency_key or str(uuid.uuid4()))
            print_accepted(row)
            if not wait:
                return EXIT_OK
            story = Story()
            with display_for(story) as display:
                for event in client.events(row["id"]):
                    display.take(event)
            return _finish(client, client.get(f"/v1/compiles/{row['id']}"), out=out)
    except (Unreadable, ApiError) as error:
        return _fail(str(error))


def estimate(spec: str, *, api: str, key: str | None) -> int:
    """What a compile would cost, step by step, and what the draft cache is expected to save of it. Starts nothing."""
    from gpu_runners.draft_tables import saving_sentence

    try:
        with Api(url=api, key=key) as client:
            answer = client.post(
                "/v1/compiles/estimate?drafts=true", read_document(spec), idempotency_key=str(uuid.uuid4())
            )
    except (Unreadable, ApiError) as error:
        return _fail(str(error))
    for step in (*answer["steps"], {"step": "total", **answer["total"]}):
        low, expected, high = (usd(step[f"{name}_microusd"]) for name in ("low", "expected", "high"))
        print(f"{step['step']:<13}{expected:>10}  ({low} to {high})")
    is_within = "" if answer["within_budget"] else ", which is not enough"
    print(f"budget {usd(answer['budget_microusd'])}{is_within}")
    print(saving_sentence(answer["draft_cache"]))
    return EXIT_OK


def pull(artifact: str, *, api: str, key: str | None, out: str | None) -> int:
    try:
        with Api(url=api, key=key) as client:
            row = client.get(f"/v1/artifacts/{artifact}")
            path = _save(client, row, Path(out or f"{row['name']}-{row['version']}.kolm"))
    except (ApiError, Unreadable) as error:
        return _fail(str(error))
    print(f"{path} ({row['size_bytes']:,} bytes, K-score {row['k_score_ppm'] / 1e6:.3f})")
    return EXIT_OK


class Unreadable(Exception):
    """A file cannot be read or written; the message says which and why."""


def read_document(path: str) -> Any:
    """JSON or YAML as plain objects. YAML is read without dates (2026-01-01 stays text) and without tags."""
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        text = data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Unreadable(f"{path} cannot be read: {error}.") from error
    if path.endswith(".json"):
        try:
            return json.loads(text)
        except ValueError as error:
            raise Unreadable(f"{path} is not JSON: {error}.") from error
    import yaml

    class Loader(yaml.SafeLoader):
        """SafeLoader less its dates."""

    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in pairs if tag != "tag:yaml.org,2002:timestamp"]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    try:
        return yaml.load(text, Loader)
    except (yaml.YAMLError, RecursionError) as error:
        raise Unreadable(f"{path} is not YAML: {' '.join(str(error).split())}.") from error


def print_accepted(row: dict[str, Any]) -> None:
    print(f"{row['id']} {row['name']}: {row['status']}")
    total = (row.get("estimate") or {}).get("total")
    if total:
        low, expected, high = (usd(total[f"{name}_microusd"]) for name in ("low", "expected", "high"))
        print(f"estimate {expected} (from {low} to {high}), budget {usd(row['budget_microusd'])}", flush=True)


def _finish(client: Api, row: dict[str, Any], *, out: str | None) -> int:
    print(f"{row['name']} {row['status']}, spent {usd(row['spent_microusd'])}" + _score(row))
    if row["status"] == "succeeded":
        artifact = client.get(f"/v1/artifacts/{row['artifact']}")
        path = _save(client, artifact, Path(out or f"{row['name']}.kolm"))
        print(f"{path} ({artifact['size_bytes']:,} bytes)")
        return EXIT_OK
    if row["status"] == "gate_failed":
        _print_gate(row.get("gate") or {})
        return EXIT_GATE_FAILED
    failure = row.get("failure") or {}
    if failure:
        print(f"{failure.get('step') or 'compile'}: {failure.get('message')} ({failure.get('code')})", file=sys.stderr)
    return EXIT_FAILED


def _score(row: dict[str, Any]) -> str:
    return "" if row.get("k_score_ppm") is None else f", K-score {row['k_score_ppm'] / 1e6:.3f}"


def _print_gate(gate: dict[str, Any]) -> None:
    for floor in gate.get("floors", []):
        print(f"  {'passed' if floor.get('passed') else 'FAILED'}  {floor.get('message', floor.get('name'))}")
    if gate.get("next_step"):
        print(f"next: {gate['next_step']}")


def _save(client: Api, artifact: dict[str, Any], path: Path) -> Path:
    """Write what has the announced digest, whole or not at all."""
    import hashlib

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


def _fail(message: str) -> int:
    print(f"kolm: {message}", file=sys.stderr)
    return EXIT_FAILED
