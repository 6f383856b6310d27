"""The chain of receipts of a compile, and its check: every envelope's signature, every link, and the artifact's own
bytes with the verifier that customers run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from backend.artifacts.models import Artifact, Receipt
from backend.artifacts.signing import keyring
from backend.blobs import get_blob
from backend.domain.artifact import kolm_verify
from backend.domain.canonical import canonical_json, sha256_hex
from backend.domain.errors import KolmError
from backend.domain.ids import Prefix, encode_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One receipt's own check; `fault` is empty where it holds."""

    seq: int
    step: str
    sha256: str
    fault: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """`artifact` is kolm_verify's verdict on the published bytes, None where nothing was published."""

    links: list[Link]
    artifact: kolm_verify.Verdict | None
    artifact_fault: str = ""

    @property
    def n_broken(self) -> int:
        return sum(bool(link.fault) for link in self.links)

    @property
    def holds(self) -> bool:
        is_trusted = self.artifact is None or self.artifact.exit_code == 0
        return bool(self.links) and not self.n_broken and is_trusted and not self.artifact_fault

    @property
    def reasons(self) -> list[str]:
        own = [f"Receipt {link.seq} ({link.step}): {link.fault}" for link in self.links if link.fault]
        of_file = [] if self.artifact is None else [f"The .kolm: {reason}" for reason in self.artifact.reasons]
        return own + of_file + ([self.artifact_fault] if self.artifact_fault else [])


def verify_compile(tenant_id: UUID, compile_id: UUID) -> Verification:
    """Check what this installation stores about a compile against its own keys."""
    receipts = Receipt.objects.of_tenant(tenant_id).filter(compile_id=compile_id).order_by("seq")
    links = check_chain(list(receipts), encode_id(Prefix.COMPILE, compile_id))
    artifact = Artifact.objects.of_tenant(tenant_id).filter(compile_id=compile_id).first()
    if artifact is None:
        return Verification(links=links, artifact=None)
    try:
        data = get_blob(tenant_id, artifact.sha256)
    except KolmError as fault:
        return Verification(links=links, artifact=None, artifact_fault=f"The .kolm cannot be read: {fault.message}")
    return Verification(links=links, artifact=kolm_verify.verify(data, keyring()))


def check_chain(receipts: Sequence[Receipt], compile_id: str) -> list[Link]:
    """Each receipt: signed by a key of the keyring, about this compile, in its place, naming the one before."""
    keys = {key["keyid"]: kolm_verify.unbase64(key["public_key"], "a public key") for key in keyring()["keys"]}
    links, head = [], ""
    for seq, row in enumerate(receipts):
        digest, fault = _check(row, seq, head, compile_id, keys)
        links.append(Link(seq=row.seq, step=row.step, sha256=digest or row.payload_sha256, fault=fault))
        head = digest or row.payload_sha256
    return links


def _check(row: Receipt, seq: int, prev: str, compile_id: str, keys: dict[str, bytes]) -> tuple[str, str]:
    """(digest of the signed payload, what is wrong); the digest is empty where no signature holds."""
    what = f"the envelope of step {row.step}"
    try:
        envelope = canonical_json(row.envelope)
        payload, _ = kolm_verify.open_envelope(envelope, kolm_verify.STATEMENT_TYPE, keys, what)
        statement: dict[str, Any] = kolm_verify.parse_canonical(payload, "the statement")
    except (kolm_verify.KolmFileError, KolmError) as fault:
        return "", str(fault)
    digest, predicate = sha256_hex(payload), statement.get("predicate")
    if not isinstance(predicate, dict) or statement.get("predicateType") != kolm_verify.PREDICATE:
        return digest, "is not a statement about a compile step"
    if digest != row.payload_sha256:
        return digest, "does not have the digest stored with it"
    if row.seq != seq or predicate.get("seq") != seq or predicate.get("prev") != prev:
        return digest, "does not follow the receipt before it"
    if predicate.get("compile") != compile_id or predicate.get("step") != row.step:
        return digest, "is about another compile or step"
    return digest, ""
