"""One tenant and another, and everything between them: generated from the routes and from Postgres' own catalogue, so
that a new address or table is bound without anybody thinking of it.

`theirs` has a row in every table, with a canary wherever there is room for text. `ours` then asks for all of it.
"""

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from itertools import product
from typing import Any
from uuid import UUID

import pytest
from django.apps import apps
from django.contrib.auth import get_user_model
from django.db import DatabaseError, connection, transaction
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone

from backend.billing.models import (
    BillingDetails,
    Customer,
    Invoice,
    InvoiceLine,
    InvoiceStatus,
    LineKind,
    StripePush,
    Subscription,
    SubscriptionStatus,
)
from backend.compiles.endpoint_lessons import keep_lessons
from backend.compiles.models import CompileLease, Outbox, StepRun, TeacherBatch, TeacherCall, TeacherCheck
from backend.domain.dialects.dialect import Lesson, Option
from backend.domain.drafts.vocabulary import Arm, Saving, Strategy
from backend.domain.ids import Prefix, encode_id
from backend.domain.jobs.runner_jobs import Progress, RunnerJobKind
from backend.domain.roles import Role
from backend.drafts.models import Calibration, Draft, Offer, Outcome, Preview
from backend.registry.models import Contribution, Withdrawal
from backend.rest.new_ids import new_id, new_uuid7
from backend.runner_jobs import leases as runner_leases
from backend.selections.models import Selection
from backend.serving.models import (
    AnswerState,
    Deployment,
    DeploymentHour,
    DeploymentRevision,
    PackReport,
    PlaygroundAnswer,
    ShadowAnswer,
)
from backend.tenants.actors import SYSTEM, Actor
from backend.tenants.isolation import TenantOwned, TenantRows, tenant_scope
from backend.tenants.models import ApiKey, Member, Tenant
from backend.tenants.team import invitations, team_settings
from backend.usage import allowances, budgets
from backend.usage.accounts import grant
from backend.usage.ledger import Fact, record
from backend.usage.savings import note_saving
from backend.webhooks import endpoints
from backend.webhooks.emit import emit
from backend.webhooks.models import WebhookAttempt, WebhookDelivery
from tests.compile_factories import (
    make_artifact,
    make_candidate,
    make_compile,
    make_receipts,
    make_slice,
    make_teacher_key,
    make_upload,
    public_id,
    small_spec,
)
from tests.draft_factories import admitted, near_one, of_family, store, store_label, write_verdict
from tests.factories import bearer, make_api_key, make_tenant
from tests.profiles import one_in

CANARY = "canary-7d41"
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
# Tables without row-level security, each with its reason.
WITHOUT_A_WALL = {
    "compiles_compilelease": "ids and times: who works on a compile",
    "compiles_outbox": "task names and ids",
    "runner_jobs_runner": "our own machines: their device, room and bases",
    "runner_jobs_runnerjob": "ids, digests and times: runners serve all tenants",
    "runner_jobs_runnerplace": "ids, counts and times: where whose job stood in the queue",
    "runner_jobs_runnerturn": "ids and times: how long whose jobs held a runner",
    "artifacts_revokeddigest": "digests and times: servers hold adapters of all tenants",
    "artifacts_signingkey": "public keys and their dates; written by the owner alone",
    "registry_epoch": "everybody's: what at least k tenants share, signed",
    "serving_server": "our own machines, and digests of what they have loaded",
    "webhooks_deliverydue": "ids and times: which delivery is sent when",
    "auth_user": "people may be in several tenants",
    "auth_group": "Django's own; empty, and not granted",
    "auth_group_permissions": "Django's own; empty, and not granted",
    "auth_permission": "Django's own; not granted",
    "auth_user_groups": "Django's own; empty, and not granted",
    "auth_user_user_permissions": "Django's own; empty, and not granted",
    "django_content_type": "Django's own; not granted",
    "django_migrations": "Django's own; not granted",
    "billing_billingturn": "ids and times: whose books are looked at when",
    "billing_catalogentry": "the ids of our prices at Stripe",
    "billing_incident": "ids and times; its figures are sealed for the tenant",
    "billing_stripeevent": "ids of what Stripe told us, fetched before anything is believed",
    "usage_billingdue": "ids and times: which accounts want attention",
    "usage_pricebookrow": "the prices, which are public",
    "usage_accountdefault": "what every new account begins with",
    "django_session": "people's, not tenants': a key, sealed-off data of the login and a time",
    "account_emailaddress": "people's: their addresses",
    "account_emailconfirmation": "people's; empty, confirmations are signed links",
    "socialaccount_socialaccount": "people's: who they are at a single sign-on provider",
    "socialaccount_socialapp": "empty: providers come from KOLM_OIDC",
    "socialaccount_socialtoken": "empty: tokens of providers are not kept",
    "mfa_authenticator": "people's: their second factors",
    "usersessions_usersession": "people's: where they are logged in",
    "tenants_retentiondue": "an id and a time: upkeep reads it for all tenants",
    "tenants_erasure": "ids, times, counts and digests: it outlives its tenant",
    "kolm_tenant_key": "the key of the wall itself; not granted",
}
SHARED = {
    "compiles_compilelease",
    "compiles_outbox",
    "runner_jobs_runner",
    "runner_jobs_runnerjob",
    "runner_jobs_runnerplace",
    "runner_jobs_runnerturn",
    "artifacts_revokeddigest",
    "registry_epoch",
    "serving_server",
    "webhooks_deliverydue",
    "tenants_retentiondue",
    "tenants_erasure",
    "billing_billingturn",
    "billing_catalogentry",
    "billing_incident",
    "billing_stripeevent",
    "usage_billingdue",
}
# Written by the owner when the deployment is migrated.
PUBLISHED = {"usage_pricebookrow", "usage_accountdefault", "artifacts_signingkey"}
# The tables of login, which the web process reads and writes for people before it knows of a tenant.
OF_PEOPLE = {
    "django_session",
    "account_emailaddress",
    "account_emailconfirmation",
    "socialaccount_socialaccount",
    "socialaccount_socialapp",
    "socialaccount_socialtoken",
    "mfa_authenticator",
    "usersessions_usersession",
}
# Read before the tenant is known: a key and an invitation by their hash, a membership by who is logged in.
LOOKED_UP = {"tenants_apikey", "tenants_invitation", "tenants_member"}
# What the owner of the tables sees beside them, for the sweep of expired rows (which runs as the owner) and for the
# command that builds indexes. It cannot change a row.
EXPIRED = {
    "drafts_source": "(expires_at < now())",
    "drafts_draft": "(expires_at < now())",
    "drafts_labeldraft": "(expires_at < now())",
    "drafts_preview": "(created_at < (now() - '1 day'::interval))",
    "serving_packreport": "(told_at < (now() - '30 days'::interval))",
    "serving_playgroundanswer": "(created_at < (now() - '1 day'::interval))",
    "serving_shadowanswer": "(created_at < (now() - '01:00:00'::interval))",
    "webhooks_webhookdelivery": "(created_at < (now() - '30 days'::interval))",
    "webhooks_webhookevent": "(created_at < (now() - '90 days'::interval))",
}
OF_THE_OWNER = {
    *((table, command, qual) for table, qual in EXPIRED.items() for command in ("SELECT", "DELETE")),
    ("drafts_scope", "SELECT", "true"),
    ("registry_contribution", "SELECT", "true"),  # kolm_registry_shared counts for all tenants
    ("tenants_member", "SELECT", "true"),  # and whose workspaces are one party's
    (
        "drafts_source",
        "SELECT",
        "CASE WHEN (COALESCE(current_setting('app.tenant'::text, true), ''::text) = ''::text) THEN false"
        " ELSE (tenant_id = ( SELECT kolm_tenant() AS kolm_tenant)) END",
    ),
}


class Household:
    """A tenant with a row in every table."""

    def __init__(self, word: str) -> None:
        self.tenant = make_tenant(f"{word} tenant")
        self.secret = make_api_key(self.tenant, name=f"{word} key")
        self.compile = make_compile(self.tenant, name=word, task=f"{word} task")
        self.upload = make_upload(self.tenant, text=f"{word} capture")
        self.teacher_key = make_teacher_key(self.tenant, name=f"{word} teacher", secret=f"sk-{word}-0123456789")
        with tenant_scope(self.tenant.id):
            keep_lessons(self.tenant.id, f"https://{word}.example/v1", word, [Lesson(option=Option.SEED)])
        self.slice = make_slice(self.compile, name=f"{word} slice", hint=word)
        self.candidate = make_candidate(self.slice, text=f"{word} candidate")
        self.receipt = make_receipts(self.compile)[0]
        self.artifact = make_artifact(self.compile)
        with tenant_scope(self.tenant.id):
            self.api_key = ApiKey.objects.get()
            self.step = StepRun.objects.filter(compile=self.compile).first()
            self.job = runner_leases.offer(
                self.tenant.id,
                runner_leases.Offer(kind=RunnerJobKind.EVALUATE, payload={"text": word}, inputs=()),
                compile_id=self.compile.id,
                step="evaluation",
            )
            self._fill(word)
        self._use_an_idempotency_key(word)
        self.selection = self._select(word)

    def _fill(self, word: str) -> None:
        """The tables that no address makes a row in by itself."""
        user = get_user_model().objects.create(username=f"{word}-{new_uuid7()}", email=f"{word}@example.com")
        self.member = Member.objects.create(tenant_id=self.tenant.id, user=user)
        actor = Actor(kind="user", id="usr_1", label=f"{word}@example.com")
        self.invitation, _ = invitations.invite(
            self.tenant.id, f"{word}-2@example.com", Role.VIEWER, giver=Role.OWNER, actor=actor
        )
        team_settings.change(self.tenant.id, actor=actor, captures_days=3_650)
        TeacherCall.objects.create(
            tenant_id=self.tenant.id,
            compile=self.compile,
            step="synthesis",
            key=word,
            fence=1,
            model=word,
            n=1,
            reserved_microusd=0,
        )
        TeacherBatch.objects.create(
            tenant_id=self.tenant.id,
            compile_id=self.compile.id,
            step="synthesis",
            model=word,
            file_sha256="0" * 64,
            n_requests=1,
            vendor_id=word,
        )
        fact = Fact(sku=word, quantity=1, unit="call", amount_microusd=1, price_version="v", source_key=word)
        record(self.tenant.id, [fact], compile_id=self.compile.id, step="synthesis")
        self._give_money(word)
        self._bill(word)
        of_compile = {"compile_id": self.compile.id, "artifact_id": self.artifact.id}
        PlaygroundAnswer.objects.create(tenant_id=self.tenant.id, **of_compile, text=word, state=AnswerState.QUEUED)
        self._keep_a_draft(word)
        self._deliver(word)
        Contribution.objects.create(tenant_id=self.tenant.id, shape_version="v", shape=word, run=word)
        Withdrawal.objects.create(tenant_id=self.tenant.id)
        self._serve(word)

    def _serve(self, word: str) -> None:
        """A deployment with its history, a request that is promised, and an answer that waits for its teacher."""
        mine, tenant_id = {"artifact_id": self.artifact.id}, self.tenant.id
        self.deployment = Deployment.objects.create(
            tenant_id=tenant_id, name=word, base_id=word, base_sha256=word, task_type="label", **mine
        )
        of_it = {"tenant_id": tenant_id, "deployment_id": self.deployment.id}
        DeploymentRevision.objects.create(**of_it, version=1, action="created", actor_kind="system", data={"a": word})
        DeploymentHour.objects.create(**of_it, **mine, hour=timezone.now())
        ShadowAnswer.objects.create(**of_it, **mine, sealed=word.encode())
        counted = {"n_answers": 1, "n_tokens": 1, "tried": [], "missed": [{"shape": word, "n": 1}]}
        digests = {"artifact_sha256": word, "pack_sha256": word, "log": word}
        PackReport.objects.create(tenant_id=tenant_id, **mine, **digests, **counted, sealed=word.encode())
        allowances.reserve(tenant_id, self.api_key.id, 1)

    def _bill(self, word: str) -> None:
        """A subscription, a push and an invoice, as a month with Stripe leaves them."""
        mine, now = {"tenant_id": self.tenant.id}, timezone.now()
        Customer.objects.create(**mine, stripe_customer_id=word)
        BillingDetails.objects.create(**mine, name=f"{word} Ltd", address=word)
        span = {"period_start": now, "period_end": now + timedelta(days=1)}
        paid = {"stripe_subscription_id": word, "status": SubscriptionStatus.ACTIVE, "metered_from": now}
        Subscription.objects.create(**mine, **span, **paid)
        StripePush.objects.create(**mine, meter="teacher", hour=now, total=1)
        self.invoice = Invoice.objects.create(**mine, **span, number=word, plan="free", status=InvoiceStatus.OPEN)
        amounts = {"amount_microusd": 0, "amount_cents": 0, "rounding_microusd": 0}
        line = {"position": 0, "kind": LineKind.USAGE, "description": word, **amounts}
        InvoiceLine.objects.create(**mine, invoice=self.invoice, **line)

    def _deliver(self, word: str) -> None:
        url, tenant_id = f"https://hooks.example.com/{word}", self.tenant.id
        endpoints.create(tenant_id, url=url, events=["compile.*"], description=word, actor=SYSTEM)
        emit(tenant_id, "compile.failed", {"object": {"object": "compile", "name": word}})
        self.delivery = WebhookDelivery.objects.get()
        answered = {"url": url, "request_headers": {}, "response_head": word, "latency_ms": 1}
        WebhookAttempt.objects.create(tenant_id=tenant_id, delivery=self.delivery, number=1, **answered)

    def _give_money(self, word: str) -> None:
        tenant_id = self.tenant.id
        give = {"kind": "promo", "amount_microusd": 10, "expires_at": None, "source_key": word}
        grant(tenant_id, **give, actor=SYSTEM)
        wanted = {"scope": "tenant", "api_key_id": None, "cap_microusd": 1, "is_hard": False}
        self.budget = budgets.create(
            tenant_id, **wanted, actor=SYSTEM
        )  # of which one micro-USD is spent: it is told of
        saving = {"step": "synthesis", "source_key": word, "saving": Saving(avoided=2), "price_version": word}
        note_saving(tenant_id, self.compile.id, **saving)

    def _keep_a_draft(self, word: str) -> None:
        tenant_id, compile_id, scope = self.tenant.id, self.compile.id, of_family(word)
        store(self.tenant, [admitted(word, candidate_id=self.candidate.id)], scope=scope, slice_text=word)
        store_label(self.tenant, word, [word], family=word)
        self.draft = Draft.objects.get()
        write_verdict(self.tenant, near_one(self.tenant, scope), price_version=word)
        slot = {"tenant_id": tenant_id, "compile_id": compile_id, "slice_position": 0, "family": word}
        Offer.objects.create(**slot, arm=Arm.OFFERED, n_wanted=1)
        counts = {"n_candidates": 1, "n_from_drafts": 0, "n_picked": 1, "n_picked_from_drafts": 0, "cost_microusd": 1}
        Outcome.objects.create(**slot, arm=Arm.OFFERED, **counts)
        learnt = {"strategy": Strategy.JUDGE, "grid_version": 1, "log_posterior": word.encode()}
        Calibration.objects.create(tenant_id=tenant_id, scope_id=self.draft.scope_id, **learnt)
        Preview.objects.create(tenant_id=tenant_id, spec={"task": word})
        asked = {"spec": {"task": word}, "status": "queued", "asked_at": timezone.now()}
        TeacherCheck.objects.create(tenant_id=tenant_id, digest=word, **asked)

    def _use_an_idempotency_key(self, word: str) -> None:
        headers = bearer(self.secret) | {"Idempotency-Key": word}
        answer = Client().post(f"/v1/compiles/{public_id(self.compile)}/cancel", headers=headers)
        assert answer.status_code == 202

    def _select(self, word: str) -> Selection:
        rows = [{"id": f"{word} row", "text": f"{word} text", "label": word}]
        headers = bearer(self.secret) | {"Prefer": "wait=0"}
        answer = Client().post("/v1/select", {"rows": rows}, content_type="application/json", headers=headers)
        assert answer.status_code == 202
        with tenant_scope(self.tenant.id):
            return Selection.objects.get()

    @property
    def ids(self) -> dict[Prefix, str]:
        """Public ids of one object of every kind."""
        rows = (self.compile, self.upload, self.teacher_key, self.slice, self.candidate, self.receipt, self.artifact)
        others = {
            Prefix.TENANT: self.tenant.id,
            Prefix.API_KEY: self.api_key.id,
            Prefix.STEP: self.step.id,
            Prefix.RUNNER_JOB: self.job.id,
            Prefix.SELECTION: self.selection.id,
            Prefix.DRAFT: self.draft.id,
            Prefix.DEPLOYMENT: self.deployment.id,
            Prefix.INVOICE: self.invoice.id,
            Prefix.BUDGET: self.budget.id,
            Prefix.MEMBER: self.member.id,
            Prefix.INVITATION: self.invitation.id,
            Prefix.WEBHOOK_ENDPOINT: self.delivery.endpoint_id,
            Prefix.WEBHOOK_EVENT: self.delivery.event_id,
            Prefix.WEBHOOK_DELIVERY: self.delivery.id,
        }
        return {Prefix(public_id(row).split("_")[0]): public_id(row) for row in rows} | {
            prefix: encode_id(prefix, id) for prefix, id in others.items()
        }


@pytest.fixture(scope="module")
def households(django_db_setup: None, django_db_blocker: Any) -> Iterator[tuple[Household, Household]]:
    with django_db_blocker.unblock():
        yield Household("ours"), Household(CANARY)
        connection.close()


@pytest.fixture
def ours(households: tuple[Household, Household], settings: Any) -> Household:
    settings.KOLM_RATE_PER_KEY = settings.KOLM_RATE_PER_TENANT = 1_000_000
    return households[0]


@pytest.fixture
def theirs(households: tuple[Household, Household]) -> Household:
    return households[1]


def all_routes(patterns: list[Any], prefix: str = "") -> Iterator[str]:
    for pattern in patterns:
        here = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from all_routes(pattern.url_patterns, here)
        elif isinstance(pattern, URLPattern):
            yield here


# The console knows people, not keys: tests/backend/console/test_foreign_ids.py asks it.
CONSOLE = ("app", "accounts/")
ROUTES = sorted(route for route in set(all_routes(get_resolver().url_patterns)) if not route.startswith(CONSOLE))
WITH_AN_ID = [route for route in ROUTES if "<" in route and not route.startswith("docs/")]  # files, of nobody
LISTS = [route for route in ROUTES if route.startswith("v1/") and "<" not in route]


def filled(route: str, id: str) -> str:
    """The route's address with `id` in the place of its first parameter."""
    first = re.sub(r"<[^>]+>", id, route, count=1)
    return "/" + re.sub(r"<[^>]+>", "0" * 64, first)


# A body that each address takes, so that the id is what it refuses.
BODIES: dict[str, dict[str, Any]] = {
    "run": {"inputs": ["a"]},
    "heartbeat": Progress(step=0, n_steps=0, loss=None, eta_s=None, checkpoint_sha256=None, note="").to_json(),
    "report": {"ok": True, "result": {}},
}


def ask(method: str, path: str, secret: str, body: Any = None, **headers: str) -> Any:
    data = json.dumps(BODIES.get(path.rpartition("/")[2], {}) if body is None else body).encode()
    return Client().generic(method, path, data, content_type="application/json", headers=bearer(secret) | headers)


def body_of(answer: Any) -> str:
    """A streamed answer is read once and kept, for those who look again."""
    if answer.streaming:
        if not hasattr(answer, "whole"):
            answer.whole = b"".join(answer.streaming_content)
        return answer.whole.decode(errors="replace")
    return answer.content.decode(errors="replace")


def leaks(answer: Any, theirs: Household, *, asked: str = "") -> list[str]:
    """What of the other tenant is in an answer, other than the id that was asked for."""
    text = body_of(answer) + str(dict(answer.headers))
    words = [CANARY, *theirs.ids.values(), theirs.artifact.sha256, theirs.upload.sha256]
    words += [theirs.selection.columns_sha256, theirs.selection.rows_sha256]
    words += [str(row.id) for row in (theirs.compile, theirs.tenant, theirs.upload, theirs.artifact, theirs.selection)]
    return [word for word in words if word in text.replace(asked, "") and word != asked]


def told(answer: Any, asked: str) -> tuple[int, str]:
    """An answer without what differs between two requests anyway."""
    text = body_of(answer).replace(asked, "ID")
    return answer.status_code, re.sub(r"req_\w{26}", "REQ", text)


def ids_for(route: str, ids: dict[Prefix, str], kinds: str) -> dict[Prefix, str]:
    """Ids to put into an address: all, or a few, which are those of what its arguments are named for, as
    `<str:compile>`."""
    if kinds == "all":
        return ids
    arguments = re.findall(r"<\w+:(\w+)>", route)
    own = {prefix: id for prefix, id in ids.items() if any(name in prefix.name.lower() for name in arguments)}
    return own or dict(list(ids.items())[:3])


@pytest.mark.parametrize("kinds", one_in(2, ["a few", "all"]))
@pytest.mark.parametrize("route", WITH_AN_ID)
def test_no_method_of_no_address_tells_another_tenants_id_from_one_that_nothing_has(route, kinds, ours, theirs):
    """For every kind of id in every place: refused, and in the very words of an id that does not exist."""
    for method, (prefix, id) in product(METHODS, ids_for(route, theirs.ids, kinds).items()):
        answer = ask(method, filled(route, id), ours.secret)
        nowhere = new_id(prefix)
        assert told(answer, id) == told(ask(method, filled(route, nowhere), ours.secret), nowhere), (method, id)
        is_public = route.startswith("v1/")
        wanted = {404, 405} if is_public else {401, 404, 405, 410}
        if method == "OPTIONS" and is_public:
            wanted = {200, 404, 405}  # it describes the address, whoever's id is in it
        assert answer.status_code in wanted, (method, id, answer.content[:300])
        assert leaks(answer, theirs, asked=id) == [], (method, id)


@pytest.mark.parametrize("kinds", one_in(2, ["a few", "all"]))
@pytest.mark.parametrize("route", WITH_AN_ID)
def test_no_address_opens_without_a_key(route, kinds, theirs):
    for method, id in product(METHODS, ids_for(route, theirs.ids, kinds).values()):
        answer = Client().generic(method, filled(route, id), b"{}", content_type="application/json")
        assert answer.status_code in {401, 404, 405, 410, 400}, (method, id)
        assert leaks(answer, theirs, asked=id) == []


@pytest.mark.parametrize("kinds", one_in(2, ["a few", "all"]))
@pytest.mark.parametrize("route", LISTS)
def test_no_list_shows_another_tenants_rows_and_no_cursor_or_filter_reaches_them(route, kinds, ours, theirs):
    cursors = ids_for(route, theirs.ids, kinds).values()
    queries = ["", *(f"?after={id}" for id in cursors), f"?before={next(iter(theirs.ids.values()))}"]
    queries += [f"?name={CANARY}", "?status=canceled", f"?family={CANARY}", f"?tenant_id={theirs.tenant.id}"]
    for query in queries:
        answer = ask("GET", f"/{route}{query}", ours.secret)
        assert answer.status_code in {200, 304, 400, 405}, query
        assert leaks(answer, theirs, asked=query.partition("=")[2]) == [], query


def test_the_lists_are_lists(ours):
    """Otherwise the test above saw nothing."""
    assert sum(ask("GET", f"/{route}", ours.secret).status_code == 200 for route in LISTS) >= 25


def test_the_same_lists_show_the_other_tenant_its_own_rows(theirs):
    """The canaries are where this file looks for them."""
    for route in (
        "v1/compiles",
        "v1/uploads",
        "v1/teacher_keys",
        "v1/artifacts",
        "v1/deployments",
        "v1/models",
        "v1/api_keys",
        "v1/drafts/stats",
        "v1/drafts",
        "v1/webhook_endpoints",
        "v1/webhook_events",
        "v1/webhook_deliveries",
    ):
        assert leaks(ask("GET", f"/{route}", theirs.secret), theirs) != [], route
    for path in ("", "/slices", "/candidates", "/receipts", "/usage"):
        answer = ask("GET", f"/v1/compiles/{public_id(theirs.compile)}{path}", theirs.secret)
        assert leaks(answer, theirs) != [], path


@pytest.mark.parametrize("path", ["/v1/compiles", "/v1/compiles/estimate", "/v1/specs/validate"])
def test_a_spec_that_names_what_is_another_tenants_is_refused_as_if_it_did_not_exist(path, ours, theirs):
    real = {"provider": "openai_compatible", "model": "m", "base_url": "https://llm.example.com/v1"}
    real["price"] = {"input_usd_per_mtok": 1, "output_usd_per_mtok": 1}

    def specs(upload: str, key: str) -> list[dict[str, Any]]:
        return [
            small_spec(examples={"upload": upload}),
            small_spec(captures={"upload": upload}),
            small_spec(teacher={"provider": "replay", "model": "kolm-grammar-1", "recording": upload}),
            small_spec(teacher=real | {"api_key": key}),
        ]

    upload, key = theirs.ids[Prefix.UPLOAD], theirs.ids[Prefix.TEACHER_KEY]
    no_upload, no_key = new_id(Prefix.UPLOAD), new_id(Prefix.TEACHER_KEY)
    for foreign, nothing in zip(specs(upload, key), specs(no_upload, no_key), strict=True):
        refused, missing = ask("POST", path, ours.secret, foreign), ask("POST", path, ours.secret, nothing)
        assert refused.status_code == 422
        words = told(refused, upload)[1].replace(key, "ID"), told(missing, no_upload)[1].replace(no_key, "ID")
        assert words[0] == words[1]


def test_another_tenants_idempotency_key_replays_nothing(ours, theirs):
    path = f"/v1/compiles/{public_id(theirs.compile)}/cancel"
    answer = ask("POST", path, ours.secret, **{"Idempotency-Key": CANARY})
    assert answer.status_code == 404
    own = ask("POST", f"/v1/compiles/{public_id(ours.compile)}/resume", ours.secret, {}, **{"Idempotency-Key": "x"})
    assert "Idempotent-Replayed" not in own


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kinds", one_in(2, ["a few", "all"]))
def test_with_the_first_wall_taken_down_the_second_still_stands(kinds, ours, theirs, monkeypatch):
    """The mutation: a query that forgets its tenant."""
    monkeypatch.setattr(TenantRows, "of_tenant", lambda self, tenant_id: self.all())
    for route in LISTS:
        assert leaks(ask("GET", f"/{route}", ours.secret), theirs) == [], route
    for route in WITH_AN_ID:
        for id in ids_for(route, theirs.ids, kinds).values():
            answer = ask("GET", filled(route, id), ours.secret)
            assert answer.status_code in {401, 404, 405, 410}
            assert leaks(answer, theirs, asked=id) == []


# --- what Postgres says --------------------------------------------------------------------------------------


def rows_of(sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return cursor.fetchall()


@pytest.fixture(scope="module")
def walled(django_db_setup: None, django_db_blocker: Any) -> set[str]:
    with django_db_blocker.unblock():
        found = rows_of(
            "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace"
            " AND relrowsecurity AND relforcerowsecurity AND NOT relispartition"
        )
        connection.close()
    return {name for (name,) in found}


def tenant_column(table: str) -> str:
    return "id" if table == "tenants_tenant" else "tenant_id"


def test_every_table_has_a_forced_wall_or_a_reason_to_have_none(walled, committed_db):
    found = rows_of(
        "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace"
        " AND NOT relispartition"
    )
    tables = {name for (name,) in found}
    assert tables - walled == set(WITHOUT_A_WALL)
    owned = {model._meta.db_table for model in apps.get_models() if issubclass(model, TenantOwned)}
    assert owned <= walled


def test_a_part_of_a_table_has_no_door_of_its_own(committed_db):
    """Walled, without a policy and without a grant: rows are reached through the whole table or not at all."""
    parts = rows_of(
        "SELECT c.relname, c.relrowsecurity AND c.relforcerowsecurity, c.relacl IS NULL,"
        " EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid) FROM pg_class c"
        " WHERE c.relispartition AND c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace"
    )
    assert len(parts) == 3 * 32
    assert {part[1:] for part in parts} == {(True, True, False)}
    for name, *_ in parts:
        with pytest.raises(DatabaseError, match="permission denied"), transaction.atomic():
            rows_of(f"SELECT * FROM {name}")


def test_every_policy_asks_for_the_tenant_and_every_command_has_one(walled, committed_db):
    found = rows_of(
        "SELECT tablename, cmd, permissive, roles::text, coalesce(qual, ''), coalesce(with_check, '') FROM pg_policies"
        " WHERE schemaname = 'public'"
    )
    assert {table for table, *_ in found} == walled
    of_owner = [row for row in found if row[3] == "{kolm_owner}"]
    assert {(table, command, " ".join(qual.split())) for table, command, _, _, qual, _ in of_owner} == OF_THE_OWNER
    for table, command, permissive, roles, qual, check in [row for row in found if row not in of_owner]:
        mine = f"({tenant_column(table)} = ( SELECT kolm_tenant() AS kolm_tenant))"
        written = qual if command in ("SELECT", "DELETE") else check
        assert mine in written, (table, command)
        if table not in LOOKED_UP:
            who = "{kolm_app}" if table in EXPIRED else "{public}"
            assert (command, permissive, roles, qual, check) == ("ALL", "PERMISSIVE", who, mine, mine), table
    for table in LOOKED_UP:
        commands = {row[1] for row in found if row[0] == table}
        assert commands == {"SELECT", "INSERT", "UPDATE", "DELETE"}


def test_the_role_of_production_owns_nothing_and_stands_under_every_wall(committed_db):
    ((name, is_super, bypasses),) = rows_of(
        "SELECT rolname, rolsuper, rolbypassrls FROM pg_roles WHERE rolname = current_user"
    )
    assert (name, is_super, bypasses) == ("kolm_app", False, False)
    assert rows_of("SELECT tablename FROM pg_tables WHERE tableowner = current_user") == []
    grants = rows_of(
        "SELECT table_name, privilege_type FROM information_schema.role_table_grants"
        " WHERE grantee IN ('kolm_app', 'PUBLIC') AND table_schema = 'public'"
    )
    bare = {(table, grant) for table, grant in grants if table in WITHOUT_A_WALL}
    everything = {"SELECT", "INSERT", "UPDATE", "DELETE"}
    bare -= {(table, "SELECT") for table in PUBLISHED}
    assert bare == set(product(SHARED | OF_PEOPLE, everything)) | set(product(["auth_user"], everything - {"DELETE"}))
    assert {grant for _, grant in grants} == everything


def test_a_query_without_any_filter_gives_ones_own_rows_alone(walled, ours, theirs):
    for household, other in ((ours, theirs), (theirs, ours)):
        with tenant_scope(household.tenant.id):
            for table in sorted(walled):
                owners = {row[0] for row in rows_of(f"SELECT {tenant_column(table)} FROM {table}")}
                assert owners == {household.tenant.id}, f"{table}: every household has a row in every table"
                with connection.cursor() as cursor:
                    column = tenant_column(table)
                    cursor.execute(f"SELECT 1 FROM {table} WHERE {column} = %s", [other.tenant.id])
                    assert cursor.fetchall() == []


def test_nothing_of_another_tenant_is_changed_or_deleted(walled, ours, theirs):
    for table in sorted(walled):
        column = tenant_column(table)
        for sql in (f"UPDATE {table} SET {column} = {column}", f"DELETE FROM {table}"):
            try:
                with tenant_scope(ours.tenant.id), connection.cursor() as cursor:
                    cursor.execute(f"{sql} WHERE {column} = %s", [theirs.tenant.id])
                    assert cursor.rowcount == 0, sql
            except DatabaseError as refused:
                if "permission denied" not in str(refused):  # what nobody may change at all
                    raise


def test_without_a_tenant_every_table_refuses_to_answer(walled, households, committed_db):
    for table in sorted(walled):
        with pytest.raises(DatabaseError), transaction.atomic():
            rows_of(f"SELECT * FROM {table}")


def test_the_tables_that_all_processes_read_hold_ids_and_times_and_nothing_of_a_tenant(theirs):
    """Their text columns are short words of ours, digests, a runner's name and a runner's error."""
    texts = rows_of(
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_name = ANY(%s)"
        " AND data_type IN ('text', 'character varying', 'jsonb')",
        sorted(SHARED),
    )
    assert {f"{table}.{column}" for table, column in texts} == {
        "compiles_compilelease.owner",
        "compiles_outbox.task",
        "compiles_outbox.ids",
        "tenants_erasure.receipt",
        *(f"billing_catalogentry.{name}" for name in ("lookup_key", "product_id", "price_id", "meter_id")),
        *(f"billing_incident.{name}" for name in ("key", "kind", "subject")),
        *(
            f"billing_stripeevent.{name}"
            for name in ("event_id", "type", "object_type", "object_id", "status", "fault")
        ),
        *(f"billing_catalogentry.{name}" for name in ("lookup_key", "product_id", "price_id", "meter_id")),
        *(f"billing_incident.{name}" for name in ("key", "kind", "subject")),
        *(
            f"billing_stripeevent.{name}"
            for name in ("event_id", "type", "object_type", "object_id", "status", "fault")
        ),
        "artifacts_revokeddigest.sha256",
        *(f"registry_epoch.{name}" for name in ("sha256", "merkle_root", "shape_version")),
        *(f"serving_server.{name}" for name in ("name", "url", "bases", "engine", "adapters")),
        *(f"runner_jobs_runner.{name}" for name in ("name", "report")),
        *(
            f"runner_jobs_runnerjob.{name}"
            for name in (
                "step",
                "kind",
                "status",
                "payload_sha256",
                "inputs",
                "runner",
                "token_sha256",
                "checkpoint_sha256",
                "result_sha256",
                "error_code",
                "error_sha256",
                "stage",
            )
        ),
        "runner_jobs_runnerplace.words",
    }
    for table in SHARED:
        assert CANARY not in str(rows_of(f"SELECT {table}::text FROM {table}"))
    assert CompileLease.objects.filter(tenant_id=theirs.tenant.id).exists()
    for ids in Outbox.objects.values_list("ids", flat=True):
        assert set(ids) <= {"tenant_id", "compile_id"}
        assert all(UUID(value) for value in ids.values())


def test_blobs_of_one_tenant_lie_apart_from_the_others(ours, theirs):
    """The same bytes, stored by both: neither can tell that the other has them."""
    from backend.blobs import get_blob, has_blob, put_blob
    from backend.domain.errors import NotFound

    digest = put_blob(theirs.tenant.id, CANARY.encode())
    assert not has_blob(ours.tenant.id, digest)
    with pytest.raises(NotFound):
        get_blob(ours.tenant.id, digest)


def test_a_tenant_reads_its_own_name_alone(ours, theirs):
    assert ask("GET", "/v1/tenant", ours.secret).json()["name"] == "ours tenant"
    with tenant_scope(ours.tenant.id):
        assert list(Tenant.objects.values_list("name", flat=True)) == ["ours tenant"]
