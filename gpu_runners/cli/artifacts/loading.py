"""The way from the path of a `.kolm` to what it holds and to the model in it, for the commands that run one."""

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from backend.domain.artifact import kolm_verify
from backend.domain.artifact.kolm_verify import Kolm, KolmFileError

if TYPE_CHECKING:
    from gpu_runners.artifacts.loader import Model
    from gpu_runners.artifacts.rules_first import RulesFirst


class Refused(Exception):
    """The file is not loaded, or an input cannot be read; `exit_code` as of `kolm verify` where it is the file."""

    def __init__(self, message: str, *, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def read_intact(file: str) -> Kolm:
    """Read what an intact file says about itself, whoever signed it. Raises Refused."""
    try:
        return kolm_verify.read_kolm(kolm_verify.read_file(file))
    except KolmFileError as error:
        raise Refused(f"{file}: {error}", exit_code=error.exit_code) from error


def read_trusted(file: str, keyring: str | None, allow_untrusted: bool) -> Kolm:
    """Verify a file before any model library is even imported. Raises Refused."""
    return read_with_digest(file, keyring, allow_untrusted)[0]


def read_with_digest(file: str, keyring: str | None, allow_untrusted: bool) -> tuple[Kolm, str]:
    """The verified file and its sha256. Raises Refused."""
    keys, problem = kolm_verify.read_keyring(keyring or kolm_verify.default_keyring())
    try:
        data = kolm_verify.read_file(file)
        return kolm_verify.load_verified(data, keys, allow_untrusted), hashlib.sha256(data).hexdigest()
    except KolmFileError as error:
        hint = ""
        if error.exit_code == 3:
            hint = f" ({problem})" if problem else ""
            hint += ". Pin its key with `kolm trust`, or pass --allow-untrusted"
        raise Refused(f"{file} is not used: {error}{hint}.", exit_code=error.exit_code) from error


def rules_of(kolm: Kolm) -> "RulesFirst | None":
    """The rules of a verified artifact, ready to answer; None where it has none."""
    from gpu_runners.artifacts.rules_first import RulesFirst, labels_of

    return RulesFirst.from_members(kolm.members, labels=labels_of(kolm.members))


def model_of(kolm: Kolm, *, max_running: int = 16, draft: str | None = None, n_texts: int | None = None) -> "Model":
    """The model of a verified artifact, its rules and its pack with it, for `n_texts` texts, None: as many as come.
    Raises Refused."""
    # a second thread gains nothing on one text and loses much on a busy machine
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    try:
        from gpu_runners.artifacts.loader import Loader, merged_model
        from gpu_runners.config import BadSetting, base_dir
        from gpu_runners.errors import JobFailed
        from gpu_runners.models.causal_adapter import is_causal
    except ImportError as error:
        raise Refused(
            f"{error.name} is needed to run models: install kolm with its extra 'runner' (docs/client.md)."
        ) from error
    try:
        if is_causal(kolm.members):
            return merged_model(kolm, base_dir=base_dir(), max_running=max_running, draft=draft)
        return Loader(keyring=None, base_dir=base_dir(), n_texts=n_texts).model_of(kolm)
    except JobFailed as error:
        raise Refused(error.message) from error
    except BadSetting as error:
        raise Refused(str(error)) from error


def read_inputs(path: str) -> list[str]:
    """The inputs of lines of {"input": ...}; "-" is standard input. Raises Refused."""
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        rows = [json.loads(line) for line in data.decode("utf-8").split("\n") if line.strip()]
    except (OSError, ValueError) as error:
        raise Refused(f"{path} cannot be read as JSON lines: {error}.", exit_code=2) from error
    for n, row in enumerate(rows, start=1):
        if not isinstance(row, dict) or not isinstance(row.get("input"), str):
            raise Refused(f'{path}: row {n} is not {{"input": "text"}}.', exit_code=2)
    return [row["input"] for row in rows]
