"""Labels and answers that the teacher gave before: the same prompt, word for word, to the same revision under the same
policy. Its answers of then are samples of the very distribution it would be sampled from now, so they are taken instead
of asking. A changed task, label, definition or schema makes another prompt and finds nothing; what a json or text
task's spec checks is checked anew."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.utils import timezone

from backend.compiles.models import Candidate, Compile, TeacherCall
from backend.compiles.states import ANSWERED_STATES, LABEL_CALLS
from backend.domain.drafts.vocabulary import Arm, Certificate, Saving, Strategy
from backend.domain.lifecycle import StepName
from backend.domain.money.pricing import TeacherPrice
from backend.domain.spec.parsing import first_votes, most_votes
from backend.drafts.cache import find_scope, scope_row
from backend.drafts.models import LabelDraft, Offer
from backend.drafts.vault import Vault, make_vault, open_vault
from backend.usage.savings import note_saving
from workers.drafts.scopes import label_scope
from workers.step.durable import CompileRun
from workers.step.teacher_profile import identity_of
from workers.teachers.prompts.answer import item_request
from workers.teachers.protocol import TeacherIdentity

LABELS = -1  # in the place of a slice's position: the look-up of a compile's labels; below it those of its later rounds
_PARTS = ("text", "logprob", "token_logprobs", "label_logprobs", "n_tokens", "finish_reason")  # of a journaled choice


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownLabels:
    """The answers of an earlier compile by text_key, and what they were billed in tokens."""

    answers: dict[str, list[dict[str, Any]]]
    input_tokens: int
    output_tokens: int


def known_labels(run: CompileRun, rows: Sequence[Candidate]) -> KnownLabels:
    """The answers to inputs that were labelled before, no more than the spec takes of one; read inside a fenced
    transaction. What they were billed is of those that would have been asked for."""
    nothing = KnownLabels(answers={}, input_tokens=0, output_tokens=0)
    scope = _scope(run, identity_of(run.spec.teacher), "")
    if scope is None or not run.spec.draft_cache.enabled or run.spec.draft_cache.verify == "off":
        return nothing
    vault, row = open_vault(run.tenant_id, run.spec.family), find_scope(run.tenant_id, scope)
    if vault is None or row is None:
        return nothing
    by_mac = {_mac(run, vault, candidate.text): candidate for candidate in rows}
    stored = LabelDraft.objects.filter(
        tenant_id=run.tenant_id,
        scope=row,
        prompt_mac__in=list(by_mac),
        expires_at__gt=timezone.now(),
    )
    answers, n_in, n_out = {}, 0, 0
    for draft in stored:
        mine = vault.unseal_json(bytes(draft.answers_sealed))[: most_votes(run.spec)]
        answers[by_mac[bytes(draft.prompt_mac)].text_key] = mine
        n_saved = min(len(mine), first_votes(run.spec))
        n_in += draft.input_tokens * min(n_saved, draft.n_calls or draft.n) // (draft.n_calls or draft.n)
        n_out += draft.output_tokens * n_saved // draft.n
    return KnownLabels(answers=answers, input_tokens=n_in, output_tokens=n_out)


def keep_labels(run: CompileRun, rows: Sequence[Candidate], answers: Mapping[str, list[list[dict[str, Any]]]]) -> None:
    """Remember the answers of freshly labelled inputs, inside the transaction of their votes, in the place of fewer;
    not those that a vendor's filter refused or that broke off, which another day may answer."""
    rows = [candidate for candidate in rows if not _is_missing(answers[candidate.text_key])]
    if not run.spec.draft_cache.enabled or not rows:
        return
    billed = _tokens_billed(run, rows)
    scope = _scope(run, identity_of(run.spec.teacher), _revision(run))
    if scope is None:
        return
    vault = make_vault(run.tenant_id, run.spec.family)
    row = scope_row(run.tenant_id, scope)
    drafts = [
        LabelDraft(
            tenant_id=run.tenant_id,
            scope=row,
            compile_id=run.compile_id,
            prompt_mac=_mac(run, vault, candidate.text),
            answers_sealed=vault.seal_json(_plain(answers[candidate.text_key])),
            n=sum(map(len, answers[candidate.text_key])),
            n_calls=len(answers[candidate.text_key]),
            input_tokens=billed[candidate.text_key][0],
            output_tokens=billed[candidate.text_key][1],
            expires_at=timezone.now() + timedelta(days=settings.KOLM_DRAFT_TTL_DAYS),
        )
        for candidate in rows
    ]
    _replace_fewer(drafts)
    LabelDraft.objects.bulk_create(drafts, ignore_conflicts=True)


def _replace_fewer(drafts: Sequence[LabelDraft]) -> None:
    """Give the drafts of fewer answers, to the same prompts, the answers that these have."""
    of = {bytes(draft.prompt_mac): draft for draft in drafts if draft.n > 1}
    if not of:
        return
    first = drafts[0]
    older = LabelDraft.objects.filter(tenant_id=first.tenant_id, scope=first.scope, prompt_mac__in=list(of))
    changed = [draft for draft in older if draft.n < of[bytes(draft.prompt_mac)].n]
    for draft in changed:
        new = of[bytes(draft.prompt_mac)]
        if draft.compile_id == new.compile_id:
            draft.input_tokens = draft.output_tokens = 0  # they are in what this compile was billed
        draft.compile_id, draft.answers_sealed = new.compile_id, new.answers_sealed
        draft.n, draft.n_calls = new.n, new.n_calls
        draft.input_tokens += new.input_tokens
        draft.output_tokens += new.output_tokens
        draft.expires_at = new.expires_at
    columns = ["compile_id", "answers_sealed", "n", "n_calls", "input_tokens", "output_tokens", "expires_at"]
    LabelDraft.objects.bulk_update(changed, columns)


def _is_missing(calls: Sequence[Sequence[Mapping[str, Any]]]) -> bool:
    return any(choice.get("finish_reason") in ("content_filter", "error") for call in calls for choice in call)


def note_labels(run: CompileRun, compile: Compile, known: KnownLabels, n_asked: int, price: TeacherPrice) -> None:
    """The account of the labels that were not asked for again: what they cost then in tokens, at today's price."""
    if not known.answers:
        return
    avoided = price.cost_microusd(input_tokens=known.input_tokens, output_tokens=known.output_tokens)
    n_before = Offer.objects.filter(tenant_id=run.tenant_id, compile_id=compile.id, slice_position__lte=LABELS).count()
    Offer.objects.bulk_create(
        [
            Offer(
                tenant_id=run.tenant_id,
                compile_id=compile.id,
                slice_position=LABELS - n_before,
                family=run.spec.family,
                strategy=Strategy.REPEAT,
                arm=Arm.OFFERED,
                n_wanted=n_asked + len(known.answers),
                n_shown=len(known.answers),
                n_accepted=len(known.answers),
                n_reused=len(known.answers),
                kept_tokens={Certificate.EXACT: known.output_tokens},
                avoided_microusd=avoided,
                price_version=price.version,
            )
        ],
        ignore_conflicts=True,
    )
    note_saving(
        run.tenant_id,
        compile.id,
        step=StepName.LABELING,
        source_key=f"drafts:{compile.id}:labels" + (f":{n_before}" if n_before else ""),
        saving=Saving(avoided=avoided),
        price_version=price.version,
    )


def _scope(run: CompileRun, identity: TeacherIdentity, revision: str) -> Any:
    return label_scope(
        identity, family=run.spec.family, temperature=run.spec.sampling.temperature_labels, revision=revision
    )


def _mac(run: CompileRun, vault: Vault, text: str) -> bytes:
    """The MAC of everything the teacher is sent but its seed."""
    request = item_request(run.spec, text, n=1, temperature=run.spec.sampling.temperature_labels, seed=None)
    parts = [part for message in request.messages for part in (message.role, message.content)]
    return vault.mac(*parts, str(request.max_tokens))


def _plain(calls: Sequence[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    return [{name: choice.get(name) for name in _PARTS} for call in calls for choice in call]


def _tokens_billed(run: CompileRun, rows: Sequence[Candidate]) -> dict[str, tuple[int, int]]:
    """Input and output tokens of each text's label calls."""
    billed = {row.text_key: (0, 0) for row in rows}
    calls = TeacherCall.objects.filter(
        tenant_id=run.tenant_id, compile_id=run.compile_id, key__startswith=LABEL_CALLS, state__in=ANSWERED_STATES
    )
    for key, n_in, n_out in calls.values_list("key", "input_tokens", "output_tokens"):
        text_key = key.split(":")[1]
        if text_key in billed:
            billed[text_key] = (billed[text_key][0] + n_in, billed[text_key][1] + n_out)
    return billed


def _revision(run: CompileRun) -> str:
    calls = TeacherCall.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id, key__startswith=LABEL_CALLS)
    revisions = set(calls.exclude(revision="").values_list("revision", flat=True).distinct()[:2])
    return revisions.pop() if len(revisions) == 1 else ""
