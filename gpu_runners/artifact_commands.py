"""`kolm trust`, `inspect`, `run`, `serve`: what is done with a `.kolm` on the reader's machine, offline but for `trust
URL`."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from backend.domain import kolm_verify
from backend.domain.kolm_verify import Kolm, KolmFileError

if TYPE_CHECKING:
    from gpu_runners.serving.label_model import LabelModel


def trust(source: str, *, keyring: str | None, yes: bool) -> int:
    """Pin keys after showing their fingerprints."""
    from gpu_runners.keyring import BadKeyring, fingerprint, parse_keys, pin

    path = Path(keyring or kolm_verify.default_keyring())
    try:
        entries = parse_keys(_fetch(source))
    except (BadKeyring, OSError) as error:
        return _fail(f"{source} gives no keys: {error}")
    print("Compare these fingerprints with ones that reached you another way:")
    for entry in entries:
        revoked = f", REVOKED {entry['revoked_at']}" if entry["revoked_at"] else ""
        print(f"  {entry['name']}, valid {entry['not_before']} to {entry['not_after']}{revoked}")
        print(f"  {fingerprint(entry['keyid'])}")
    if not yes and not _agrees(f"Trust {'this key' if len(entries) == 1 else 'these keys'} for .kolm files? [y/N] "):
        return _fail("nothing was pinned; answer y, or pass --yes after comparing.")
    try:
        added, replaced = pin(path, entries)
    except (BadKeyring, OSError) as error:
        return _fail(f"{path} cannot be changed: {error}")
    print(f"{path}: {added} added, {replaced} renewed.")
    return 0


def inspect(file: str, *, as_json: bool) -> int:
    """What an intact file says about itself. Trust is `kolm verify`'s question, and not answered here."""
    try:
        kolm = kolm_verify.read_kolm(kolm_verify.read_file(file))
    except KolmFileError as error:
        return _fail(f"{file}: {error}", code=error.exit_code)
    if as_json:
        documents = {path: json.loads(kolm.members[path]) for path in kolm.members if path in _DOCUMENTS}
        print(
            json.dumps(
                {"manifest": kolm.manifest, "documents": documents, "receipts": kolm.receipts},
                ensure_ascii=False,
                indent=2,
            )
        )
        return 0
    manifest = kolm.manifest
    print(
        f"{manifest['name']}  {manifest['task_type']} task, compiled {manifest['created_at']} as {manifest['compile']}"
    )
    print(f"base      {manifest['base']['id']}  {manifest['base']['sha256'][:16]}…")
    print(f"K-score   {manifest['k_score_ppm'] / 1e6:.4f}, gate {manifest['gate']}")
    if "labels.json" in kolm.members:
        print(f"labels    {', '.join(json.loads(kolm.members['labels.json']))}")
    signers = ", ".join(keyid[:16] + "…" for keyid in kolm.signers)
    print(f"signed by {signers}  (not checked against a keyring: kolm verify)")
    print("receipts  " + " → ".join(str(receipt["predicate"]["step"]) for receipt in kolm.receipts))
    for member in manifest["members"]:
        print(f"  {member['size']:>10,}  {member['sha256'][:16]}…  {member['path']}")
    return 0


_DOCUMENTS = frozenset(
    {"spec.json", "k_score.json", "gate.json", "evals.json", "training_stats.json", "provenance.json", "labels.json"}
)


def run(
    file: str, texts: Sequence[str], *, jsonl: str | None, as_json: bool, keyring: str | None, allow_untrusted: bool
) -> int:
    try:
        inputs = list(texts) if jsonl is None else _read_jsonl(jsonl)
        if jsonl is not None and texts:
            return _fail("give texts or --jsonl, not both.", code=2)
        if not inputs:
            return _fail('give a text, or lines of {"input": …} with --jsonl.', code=2)
        _, model = _load(file, keyring, allow_untrusted)
    except Refused as error:
        return _fail(str(error), code=error.exit_code)
    for text, output in zip(inputs, model.predict(inputs), strict=True):
        if as_json or jsonl is not None:
            print(json.dumps({"input": text} | dict(output), ensure_ascii=False))
        else:
            print(f"{output['label']}  {output['confidence']:.3f}  {output['latency_us'] / 1000:.1f} ms")
    return 0


def serve(file: str, *, host: str, port: int, keyring: str | None, allow_untrusted: bool) -> int:
    from gpu_runners.serving.server import ArtifactServer

    try:
        kolm, model = _load(file, keyring, allow_untrusted)
    except Refused as error:
        return _fail(str(error), code=error.exit_code)
    try:
        server = ArtifactServer((host, port), model=model, manifest=kolm.manifest)
    except OSError as error:
        return _fail(f"{host}:{port} cannot be used ({error.strerror}); choose another --port.")
    with server:
        print(f"serving {kolm.manifest['name']} on http://{host}:{server.server_address[1]}/v1/run", flush=True)
        server.serve_forever()
    return 0


class Refused(Exception):
    """The file is not loaded, or an input cannot be read; `exit_code` as of `kolm verify` where it is the file."""

    def __init__(self, message: str, *, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def _load(file: str, keyring: str | None, allow_untrusted: bool) -> tuple[Kolm, "LabelModel"]:
    """Verified before any model library is even imported."""
    keys, problem = kolm_verify.read_keyring(keyring or kolm_verify.default_keyring())
    try:
        kolm = kolm_verify.load_verified(file, keys, allow_untrusted)
    except KolmFileError as error:
        hint = ""
        if error.exit_code == 3:
            hint = f" ({problem})" if problem else ""
            hint += ". Pin its key with `kolm trust`, or pass --allow-untrusted"
        raise Refused(f"{file} is not run: {error}{hint}.", exit_code=error.exit_code) from error
    # a second thread gains nothing on one text and loses much on a busy machine
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    try:
        from gpu_runners.config import base_dir
        from gpu_runners.errors import JobFailed
        from gpu_runners.serving.loader import Loader
    except ImportError as error:
        raise Refused(f"{error.name} is needed to run models: pip install 'kolm[runner]'.") from error
    try:
        return kolm, Loader(keyring=None, base_dir=base_dir()).model_of(kolm)
    except JobFailed as error:
        raise Refused(error.message) from error


def _read_jsonl(path: str) -> list[str]:
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        rows = [json.loads(line) for line in data.decode("utf-8").split("\n") if line.strip()]
    except (OSError, ValueError) as error:
        raise Refused(f"{path} cannot be read as JSON lines: {error}.", exit_code=2) from error
    for n, row in enumerate(rows, start=1):
        if not isinstance(row, dict) or not isinstance(row.get("input"), str):
            raise Refused(f'{path}: row {n} is not {{"input": "text"}}.', exit_code=2)
    return [row["input"] for row in rows]


def _fetch(source: str) -> bytes:
    if not source.startswith(("http://", "https://")):
        return Path(source).read_bytes()
    import httpx

    from gpu_runners.keyring import WELL_KNOWN

    url = httpx.URL(source)
    if url.path in ("", "/"):
        url = url.copy_with(path=WELL_KNOWN)
    try:
        response = httpx.get(url, timeout=15.0)
        response.raise_for_status()
    except httpx.HTTPError as error:
        raise OSError(str(error)) from error
    return response.content


def _agrees(question: str) -> bool:
    return sys.stdin.isatty() and input(question).strip().lower() in ("y", "yes")


def _fail(message: str, *, code: int = 1) -> int:
    print(f"kolm: {message}", file=sys.stderr)
    return code
