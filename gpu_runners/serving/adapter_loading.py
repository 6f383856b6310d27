"""The way from the bytes of a `.kolm` to an adapter in a folder: verified, the tenant's own, fitting a base that is
here.

Nothing of the bytes is parsed before `kolm_verify.load_verified` has re-derived them and checked their signatures.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from backend.domain.artifact.kolm_verify import Kolm, KolmFileError, load_verified, read_keyring
from backend.domain.serving.wire import Grant
from gpu_runners.artifacts.pack_attachment import PACK_FILE, mounted_pack
from gpu_runners.artifacts.rules_first import RulesFirst, labels_of
from gpu_runners.errors import JobFailed
from gpu_runners.models.causal_adapter import FORMAT, AdapterConfig, from_bytes, is_causal
from gpu_runners.models.causal_base import CausalBase
from gpu_runners.models.protocol import AdapterRef, Drafting
from gpu_runners.serving.adapter_files import Unpacked, unpack
from gpu_runners.serving.openai.responder import Refusal
from gpu_runners.serving.students import Student, Students

OpenBase = Callable[[str], CausalBase]  # raises JobFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """A verified adapter in a folder of its own, its recipe pack beside it. `prompt` is the artifact's prompt.json;
    `drafting` and `rules` are None where it ships none that can be used."""

    ref: AdapterRef
    tenant_digest: str
    base: CausalBase
    config: AdapterConfig
    prompt: Mapping[str, Any]
    unpacked: Unpacked
    drafting: Drafting | None = None
    rules: RulesFirst | None = None

    @property
    def key(self) -> str:
        return self.ref.key

    @property
    def n_bytes(self) -> int:
        return self.unpacked.n_bytes

    def is_sound(self, *, to_the_byte: bool) -> bool:
        """Say whether the folder is as it was written; `to_the_byte` reads it."""
        return self.unpacked.is_as_written(to_the_byte=to_the_byte)

    def forget(self) -> None:
        shutil.rmtree(self.unpacked.folder, ignore_errors=True)


def open_artifact(
    data: bytes,
    grant: Grant,
    *,
    number: int,
    root: Path,
    keyring: Path | None,
    open_base: OpenBase,
    students: Students | None,
) -> Adapter | Student:
    """The adapter of an artifact, under `root`, or its student on an encoder. The keyring is read each time: a key may
    have been revoked since. Raises Refusal."""
    trusted, _ = read_keyring(str(keyring)) if keyring is not None else (None, None)
    try:
        kolm = load_verified(data, trusted)
    except KolmFileError as error:
        code = "artifact_untrusted" if error.exit_code == 3 else "artifact_altered"
        raise make_refusal(409, code, f"This server does not load the artifact: {error}.") from error
    check_tenant(grant, kolm.manifest["tenant_digest"])
    try:
        if students is not None and not is_causal(kolm.members):
            return students.open(kolm, key=grant.sha256)
        base, config, prompt = _fitting(kolm, open_base)
        adapter = from_bytes(kolm.members["adapter.safetensors"], config)
    except JobFailed as error:
        raise make_refusal(409, error.code, f"This server cannot run the artifact: {error.message}") from error
    except KeyError as error:
        raise make_refusal(
            409, "invalid_artifact", f"This server cannot run the artifact: no {error} in it."
        ) from error
    pack = mounted_pack(kolm.members, tokenizer_sha256=base.tokenizer_sha256)
    beside = {} if pack is None else {PACK_FILE: pack.data}
    unpacked = unpack(root, grant.sha256, adapter, config, beside=beside)
    return Adapter(
        ref=AdapterRef(key=grant.sha256, folder=unpacked.folder, number=number),
        tenant_digest=kolm.manifest["tenant_digest"],
        base=base,
        config=config,
        prompt=prompt,
        unpacked=unpacked,
        drafting=None if pack is None else pack.drafting(unpacked.folder),
        rules=RulesFirst.from_members(kolm.members, labels=labels_of(kolm.members)),
    )


def check_tenant(grant: Grant, digest: str) -> None:
    """`digest` is the manifest's `tenant_digest`. Raises Refusal."""
    try:
        own = hashlib.sha256(b"kolm/tenant/" + UUID(hex=grant.tenant).bytes).hexdigest()
    except ValueError as error:
        raise make_refusal(403, "artifact_refused", "The grant names no tenant.") from error
    if own != digest:
        raise make_refusal(403, "artifact_refused", "The artifact is not to be had.")


def make_refusal(status: int, code: str, message: str) -> Refusal:
    """A fresh one each time: an exception that is raised twice grows its traceback."""
    return Refusal(status, code, message)


def _fitting(kolm: Kolm, open_base: OpenBase) -> tuple[CausalBase, AdapterConfig, Mapping[str, Any]]:
    """Raises JobFailed for an artifact of another kind, base or tokenizer."""
    config_json = _json_object(kolm, "adapter_config.json")
    if config_json.get("format") != FORMAT:
        raise JobFailed("It holds no adapter of a causal base.", code="unsupported_task")
    config, prompt = AdapterConfig.from_json(config_json), _json_object(kolm, "prompt.json")
    wanted = kolm.manifest["base"]
    base = open_base(wanted["id"])
    if not wanted["sha256"] == config.base_sha256 == base.sha256:
        raise JobFailed(f"It needs another {wanted['id']!r} than is served here.", code="base_mismatch")
    if config.tokenizer_sha256 != base.tokenizer_sha256:
        raise JobFailed(
            f"It was trained with another tokenizer than that of {wanted['id']!r} here.", code="tokenizer_mismatch"
        )
    return base, config, prompt


def _json_object(kolm: Kolm, path: str) -> dict[str, Any]:
    try:
        value = json.loads(kolm.members[path])
    except (KeyError, ValueError) as error:
        raise JobFailed(f"{path} is missing or not JSON.", code="invalid_artifact") from error
    if not isinstance(value, dict):
        raise JobFailed(f"{path} is no object.", code="invalid_artifact")
    return value
