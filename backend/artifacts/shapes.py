"""Answers about artifacts and receipts, and artifacts as webhooks tell of them."""

from typing import Any, ClassVar

from django.conf import settings
from rest_framework import serializers as s

from backend.artifacts.models import Artifact, Receipt
from backend.compiles.shapes import CARD_HELP, without_card
from backend.domain.artifact.kolm_verify import Verdict
from backend.domain.ids import Prefix, encode_id
from backend.rest.shapes import Constant, PublicId, Shape, Time


class ArtifactShape(Shape[Artifact]):
    id = PublicId(Prefix.ARTIFACT)
    object = Constant("artifact")
    compile = PublicId(Prefix.COMPILE, source="compile_id")
    name = s.CharField()
    version = s.IntegerField()
    sha256 = s.CharField()
    size_bytes = s.IntegerField()
    k_score_ppm = s.IntegerField()
    evaluation = s.JSONField()
    card = s.DictField(allow_null=True, help_text=CARD_HELP)
    manifest = s.JSONField()
    created_at = Time()
    revoked_at = Time(allow_null=True)
    revoked_reason = s.CharField(allow_null=True)

    def get_evaluation(self, row: Artifact) -> dict[str, Any]:
        return without_card(row.evaluation)

    def get_card(self, row: Artifact) -> dict[str, Any] | None:
        return row.evaluation.get("card")

    def get_revoked_reason(self, row: Artifact) -> str | None:
        return row.revoked_reason if row.revoked_at else None


class ArtifactNotice(ArtifactShape):  # as webhooks tell of it: with the address of the whole
    manifest = None  # type: ignore[assignment]
    evaluation = None  # type: ignore[assignment]
    card = None  # type: ignore[assignment]
    url = s.CharField()

    def get_url(self, row: Artifact) -> str:
        return f"{settings.KOLM_PUBLIC_URL}/v1/artifacts/{encode_id(Prefix.ARTIFACT, row.id)}"


class ReceiptShape(Shape[Receipt]):
    id = PublicId(Prefix.RECEIPT)
    object = Constant("receipt")
    seq = s.IntegerField()
    step = s.CharField()
    payload_sha256 = s.CharField()
    envelope = s.JSONField(help_text="DSSE envelope with an in-toto statement; the payload is signed as it stands.")
    created_at = Time()


class VerificationShape(Shape[Verdict]):
    WORDS: ClassVar = {0: "trusted", 3: "untrusted", 1: "broken", 2: "not_an_artifact"}  # by exit code

    object = Constant("verification")
    verdict = s.ChoiceField(list(WORDS.values()))
    exit_code = s.IntegerField()
    reasons = s.ListField(child=s.CharField())
    keyid = s.CharField(allow_null=True)

    def get_verdict(self, verdict: Verdict) -> str:
        return str(self.WORDS[verdict.exit_code])
