"""`kolm trust`, `inspect`, `run`, `serve`: what is done with a `.kolm` on the reader's machine, offline but for `trust
URL`."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backend.domain import kolm_verify
from backend.domain.errors import OurError
from backend.domain.kolm_verify import Kolm, KolmFileError

if TYPE_CHECKING:
    from gpu_runners.serving.generative_model import GenerativeModel
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
    if "prompt.json" in kolm.members:
        print(f"answers   {_answers(json.loads(kolm.members['prompt.json']))}")
    signers = ", ".join(keyid[:16] + "…" for keyid in kolm.signers)
    print(f"signed by {signers}  (not checked against a keyring: kolm verify)")
    print("receipts  " + " → ".join(str(receipt["predicate"]["step"]) for receipt in kolm.receipts))
    for member in manifest["members"]:
        print(f"  {member['size']:>10,}  {member['sha256'][:16]}…  {member['path']}")
    return 0


_DOCUMENTS = frozenset(
    {
        *("spec.json", "k_score.json", "gate.json", "evals.json", "training_stats.json", "provenance.json"),
        *("labels.json", "prompt.json"),
    }
)


def _answers(prompt: Any) -> str:
    """What a model on a causal base writes, in a line; the file's maker may have put anything there."""
    answer = prompt.get("answer") if isinstance(prompt, dict) else None
    kind = answer.get("type") if isinstance(answer, dict) else None
    if not isinstance(answer, dict) or kind not in ("json", "label", "text"):
        return "of no known kind"
    longest = f"at most {prompt.get('max_new_tokens')} tokens"
    if kind != "json":
        return f"{'one of its labels' if kind == 'label' else 'text'}, {longest}"
    schema = answer.get("schema")
    fields = schema.get("properties") if isinstance(schema, dict) else None
    names = ", ".join(sorted(fields)) if isinstance(fields, dict) and fields else "any fields"
    return f"JSON with {names}, {longest}"


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
    try:
        outputs: list[dict[str, Any]] = [dict(row) for row in model.predict(inputs)]
    except OurError as error:  # an input longer than the base's context
        return _fail(error.message)
    for text, output in zip(inputs, outputs, strict=True):
        print(json.dumps({"input": text} | output, ensure_ascii=False) if as_json or jsonl else _line(output))
    return 0


def _line(output: Mapping[str, Any]) -> str:
    if "label" in output:
        return f"{output['label']}  {output['confidence']:.3f}  {output['latency_us'] / 1000:.1f} ms"
    return f"{output['output']}{'' if output['finish_reason'] == 'stop' else '  (cut off)'}"


def serve(file: str, *, host: str, port: int, keyring: str | None, allow_untrusted: bool, max_running: int = 16) -> int:
    try:
        kolm, model = _load(file, keyring, allow_untrusted, max_running=max_running)
    except Refused as error:
        return _fail(str(error), code=error.exit_code)
    from gpu_runners.serving.label_model import LabelModel
    from gpu_runners.serving.server import ArtifactServer

    if not isinstance(model, LabelModel):
        from gpu_runners.serving.openai.single import serve_one

        return serve_one(kolm, model, host=host, port=port)
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


def _load(
    file: str, keyring: str | None, allow_untrusted: bool, *, max_running: int = 16
) -> tuple[Kolm, "LabelModel | GenerativeModel"]:
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
        from gpu_runners.serving.causal_members import is_causal
        from gpu_runners.serving.loader import Loader, merged_model
    except ImportError as error:
        raise Refused(f"{error.name} is needed to run models: pip install 'kolm[runner]'.") from error
    try:
        if is_causal(kolm.members):
            return kolm, merged_model(kolm, base_dir=base_dir(), max_running=max_running)
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
