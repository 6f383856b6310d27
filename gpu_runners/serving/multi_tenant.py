"""Many tenants behind one port: what a grant opens, and an engine that is metered, fair and revocable.

The gateway sends a grant with each request, and nothing else says whose it is. What comes out of `resolve` is good for
that one request: its engine runs that artifact's adapter, under that tenant's cache salt, whatever the request says.
"""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any

from backend.domain.serving.wire import BadGrant, Grant, read_grant
from gpu_runners.artifacts.pack_attachment import drafted_where_taken
from gpu_runners.artifacts.rules_first import RuleAnswer
from gpu_runners.models.protocol import Delta, Drafting, Engine, GenerationRequest, Overloaded
from gpu_runners.serving.adapter_loading import Adapter
from gpu_runners.serving.openai.responder import Refusal, Served, ServedStudent
from gpu_runners.serving.server_context import FAILED, Meter, ServerContext
from gpu_runners.serving.student_calls import StudentCall
from gpu_runners.serving.students import Student


class GrantedResponder:
    """`Responder` for requests with grants. `now` gives Unix time."""

    def __init__(self, context: ServerContext, *, now: Callable[[], float] = time.time) -> None:
        self._context, self._now = context, now

    async def admit(self, headers: Mapping[str, str]) -> str:
        """The tenant of the grant, which must open something here."""
        with self._count_refusals():
            return self._open_grant(headers)[0].tenant

    async def resolve(self, model: str, headers: Mapping[str, str]) -> Served | ServedStudent:
        with self._count_refusals():
            return await self._resolve(model, headers)

    async def models(self, headers: Mapping[str, str]) -> list[dict[str, Any]]:
        """The one that the grant opens."""
        grant, _ = self._grant(headers)
        return [{"id": grant.deployment or grant.artifact, "object": "model", "created": 0, "owned_by": "kolm"}]

    async def _resolve(self, model: str, headers: Mapping[str, str]) -> Served | ServedStudent:
        grant, token = self._open_grant(headers)
        if model.startswith("art_") and model != grant.artifact:
            raise Refusal(403, "artifact_refused", "The grant is for another artifact than was named.")
        async with self._context.store.using(grant, token) as adapter:
            if isinstance(adapter, Student):
                call = StudentCall(self._context, grant=grant, token=token, student=adapter)
                return ServedStudent(student=adapter.model, answer=call.answer, model=model)
            engine = CallEngine(self._context, grant=grant, token=token, adapter=adapter)
            return Served(
                engine=engine,
                base=adapter.base,
                adapter=adapter.ref,
                prompt=adapter.prompt,
                model=model,
                tenant=grant.tenant,
                cache_salt=grant.cache_salt,
                rules=adapter.rules,
                note_rule=engine.note_rule,
            )

    @contextmanager
    def _count_refusals(self) -> Iterator[None]:
        try:
            yield
        except Refusal as refusal:
            self._context.refusals[refusal.code] += 1
            raise

    def _open_grant(self, headers: Mapping[str, str]) -> tuple[Grant, str]:
        """Raises Refusal, also where no new work may begin."""
        grant, token = self._grant(headers)
        self._context.check_open()
        if self._context.dedicated not in ("", grant.sha256):
            raise Refusal(403, "dedicated", "This server answers for one other artifact alone.")
        return grant, token

    def _grant(self, headers: Mapping[str, str]) -> tuple[Grant, str]:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Refusal(401, "no_grant", "This server answers the gateway; send requests to the API.")
        try:
            return read_grant(token.strip(), self._context.key, now=self._now()), token.strip()
        except (BadGrant, ValueError, TypeError, KeyError) as error:
            raise Refusal(401, "bad_grant", "The grant is not valid.") from error


class CallEngine:
    """One request's engine: waits for its turn, runs the granted adapter, and notes each token before it goes out."""

    def __init__(self, context: ServerContext, *, grant: Grant, token: str, adapter: Adapter) -> None:
        self._context, self._grant, self._token, self._adapter = context, grant, token, adapter

    @property
    def about(self) -> Mapping[str, Any]:
        engine = self._context.engines.running().get(self._adapter.base.name)
        return {} if engine is None else engine.about

    def counters(self) -> Mapping[str, int]:
        return self._context.engines.totals()

    async def forget(self, key: str) -> None:
        raise NotImplementedError("one request does not decide about an adapter")

    async def close(self) -> None:
        """The engine under it belongs to the server."""

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Delta, None]:
        context, grant = self._context, self._grant
        try:
            async with self._ready() as (engine, adapter):
                is_merged = bool(context.dedicated) and engine.about.get("adapters") == "merged"
                ref = None if is_merged else adapter.ref
                mine = replace(
                    request,
                    adapter=ref,
                    tenant=grant.tenant,
                    cache_salt=grant.cache_salt,
                    drafting=self._drafting(adapter),
                )
                async with aclosing(self._meter_deltas(engine, mine)) as deltas:
                    async for delta in deltas:
                        yield delta
        except (Refusal, Overloaded) as refusal:
            context.refusals[getattr(refusal, "code", "overloaded")] += 1
            raise

    def note_rule(self, answer: RuleAnswer) -> None:
        """A rule's answer is a request without tokens. Raises Refusal where it may not go out."""
        if self._context.store.is_revoked(self._grant.sha256):
            raise Refusal(410, "artifact_revoked", "The artifact has been revoked.")
        Meter(self._context, self._grant, self._token).rule(answer.latency_us)

    def _drafting(self, adapter: Adapter) -> Drafting | None:
        """The drafting of the granted artifact alone; what is learned about its pack is its tenant's."""
        drafting = adapter.drafting if self._context.has_drafts else None
        if drafting is not None and drafting.pack is not None:
            self._context.feedback.expect(self._grant, self._token, drafting.pack.key)
        return drafting

    @asynccontextmanager
    async def _ready(self) -> AsyncIterator[tuple[Engine, Adapter]]:
        """The engine and the adapter, both held, in this request's turn. Who waits for an engine to start is in the
        queue already."""
        context, grant = self._context, self._grant
        context.check_open()
        async with (
            context.scheduler.turn(grant.tenant, limit=max(1, grant.max_concurrent)),
            self._using() as adapter,
            context.engines.using(adapter) as engine,
        ):
            yield engine, adapter

    @asynccontextmanager
    async def _using(self) -> AsyncIterator[Adapter]:
        async with self._context.store.using(self._grant, self._token) as adapter:
            assert isinstance(adapter, Adapter)  # the grant names one artifact, and this call was made for an adapter
            yield adapter

    async def _meter_deltas(self, engine: Engine, request: GenerationRequest) -> AsyncGenerator[Delta, None]:
        meter = Meter(self._context, self._grant, self._token)
        try:
            async with aclosing(drafted_where_taken(engine, request)) as deltas:
                async for delta in deltas:
                    if self._context.store.is_revoked(self._grant.sha256):
                        raise Refusal(410, "artifact_revoked", "The artifact has been revoked.")
                    meter.note(delta.counts)
                    if delta.finish_reason is not None:
                        meter.reason = str(delta.finish_reason)
                    yield delta
        except Exception:
            meter.reason = FAILED
            raise
        finally:
            meter.end()
