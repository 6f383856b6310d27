"""Drafts as their tenant reads them: unsealed, with what was said of them."""

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from backend.drafts.models import Draft, Scope, Source, Verdict
from backend.drafts.vault import Vault, open_vault

MOST_VERDICTS = 100


def drafts_of(tenant_id: UUID, *, family: str | None, state: str | None) -> QuerySet[Draft]:
    rows = Draft.objects.of_tenant(tenant_id).defer("tokens_sealed", "token_logprobs")
    if family is not None:
        scopes = Scope.objects.filter(tenant_id=tenant_id, family=family).values_list("id", flat=True)
        rows = rows.filter(scope_id__in=list(scopes))
    if state is not None:
        rows = rows.filter(state=state)
    return rows


def verdicts_on(draft: Draft) -> QuerySet[Verdict]:
    """The newest first."""
    rows = Verdict.objects.filter(tenant_id=draft.tenant_id, draft_id=draft.id, scope_id=draft.scope_id)
    return rows.order_by("-id")[:MOST_VERDICTS]


@dataclass(slots=True)
class Reader:
    """Opens drafts of one tenant; each scope is looked up and each family's vault opened once."""

    tenant_id: UUID
    _scopes: dict[UUID, Scope] = field(default_factory=dict)
    _vaults: dict[str, Vault | None] = field(default_factory=dict)

    def scope(self, draft: Draft) -> Scope:
        if draft.scope_id not in self._scopes:
            self._scopes |= {row.id: row for row in Scope.objects.filter(tenant_id=self.tenant_id)}
        return self._scopes[draft.scope_id]

    def open(self, draft: Draft) -> Draft:
        """Add the scope and the text to the row, and return it."""
        draft.scope, draft.text = self.scope(draft), self.text(draft)
        return draft

    def text(self, draft: Draft) -> str | None:
        """None when the family's key is gone."""
        vault = self._vault(draft)
        return None if vault is None else vault.unseal(bytes(draft.text_sealed))

    def slice_text(self, draft: Draft) -> str | None:
        """Return the text of the slice that a draft was written for; None when that is gone."""
        vault = self._vault(draft)
        source = Source.objects.filter(tenant_id=self.tenant_id, id=draft.source_id).only("prompt_sealed").first()
        if vault is None or source is None:
            return None
        prompt: dict[str, Any] = vault.unseal_json(bytes(source.prompt_sealed))
        return str(prompt["slice_text"])

    def _vault(self, draft: Draft) -> Vault | None:
        family = self.scope(draft).family
        if family not in self._vaults:
            self._vaults[family] = open_vault(self.tenant_id, family)
        return self._vaults[family]
