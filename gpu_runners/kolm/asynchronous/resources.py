"""The asyncio face of resources.py, of which it is made: see tests/gpu_runners/kolm/async_sources.py."""

import asyncio
import hashlib
import json
import time
from collections.abc import (
    AsyncIterator,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import httpx

from ..errors import KolmError
from ..events import Event
from ..progress import CompileProgress, display_here
from ..resources import CURVE_PAUSE_S, PREFLIGHT_S, Spec, document_of
from ..rows import (
    Artifact,
    Candidate,
    Compile,
    Draft,
    Estimate,
    HeldoutAnswer,
    Json,
    LearningCurve,
    Output,
    Receipt,
    Run,
    Slice,
    Step,
    Upload,
    UsageTotal,
    Verification,
    build,
)
from ..spec_drafts import SpecDraft
from ..spec_files import FileRows, files_of, without_file
from ..tables import Rows, jsonl_of
from .events import Follower
from .resource import Resource


class Compiles(Resource):
    def list(
        self, *, status: str | None = None, name: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Compile]:
        return self._pages(Compile, "/v1/compiles", limit=limit, status=status, name=name)

    async def get(self, id: str) -> Compile:
        return build(Compile, await self._get(f"/v1/compiles/{id}"))

    async def create(
        self,
        spec: Spec,
        *,
        wait: bool = False,
        examples: Rows = None,
        captures: Rows = None,
        idempotency_key: str | None = None,
        on_event: Callable[[Event], object] | None = None,
        progress: bool = False,
        timeout_s: float | None = None,
    ) -> Compile:
        """Start a compile; with `wait`, come back when it has ended, whatever its end (`status` says which).

        `spec` is a mapping, a draft of `kolm.spec_from`, or the path of a YAML or JSON file. `examples` and `captures`
        (a DataFrame, a list of dicts or texts, a JSONL file) are uploaded and named in the spec."""
        document = await self.document(spec)
        uploads = Uploads(self.transport)
        for part, rows in (("examples", examples), ("captures", captures)):
            if rows is not None:
                upload = await uploads.create(rows, purpose=part)
                document[part] = {**(document.get(part) or {}), "upload": upload.id}
        row = build(Compile, await self._post("/v1/compiles", document, idempotency_key=idempotency_key))
        if not wait:
            return row
        return await self.wait(row.id, on_event=on_event, progress=progress, timeout_s=timeout_s)

    async def wait(
        self,
        id: str,
        *,
        after: int = 0,
        on_event: Callable[[Event], object] | None = None,
        progress: bool = False,
        timeout_s: float | None = None,
    ) -> Compile:
        """The compile once it has ended. `on_event` sees each event; `progress` shows them, as a table in a notebook
        and as lines elsewhere. Raises KolmError with the code `wait_timeout` after `timeout_s`; the compile goes on all
        the same."""
        show = display_here(CompileProgress()).take if progress else None
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        async for event in self.events(id, after=after):
            if show is not None:
                show(event)
            if on_event is not None:
                on_event(event)
            if deadline is not None and time.monotonic() > deadline:
                raise KolmError(f"{id} has not ended within {timeout_s:.0f} s; it goes on.", code="wait_timeout")
        return await self.get(id)

    def events(self, id: str, *, after: int = 0) -> AsyncIterator[Event]:
        """Every event once and in order, from the one behind `after`, until the compile has ended. A connection that
        breaks is taken up where it broke."""
        return Follower(transport=self.transport, compile_id=id, after=after).events()

    def log(self, id: str, *, after: int = 0) -> AsyncIterator[Event]:
        """Every event so far, from the one behind `after`; the compile is not waited for."""
        return Follower(transport=self.transport, compile_id=id, after=after).page()

    async def document(self, spec: Spec) -> dict[str, Any]:
        """The spec as it is sent: files that it names (`examples: {file: tickets.csv}`) are uploaded, and a draft's
        rows, and their ids stand in it. The same content is not stored twice."""
        uploads = Uploads(self.transport)
        if isinstance(spec, SpecDraft):
            lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in spec.rows).encode()
            document, files = (dict(spec.spec), [FileRows(part=spec.part, name=spec.file[:100], lines=lines)])
        else:
            document = await asyncio.to_thread(document_of, spec)
            folder = Path(spec).parent if isinstance(spec, str | PathLike) else Path()
            files = await asyncio.to_thread(files_of, document, folder=folder)
        for one in files:
            upload = await uploads.store(
                one.lines, purpose=one.part, name=one.name, idempotency_key=one.idempotency_key
            )
            document[one.part] = without_file(document[one.part]) | {"upload": upload.id}
        return document

    async def estimate(self, spec: Spec, *, drafts: bool = False) -> Estimate:
        path = "/v1/compiles/estimate" + ("?drafts=true" if drafts else "")
        return build(Estimate, await self._post(path, await self.document(spec)))

    async def preflight(self, spec: Spec) -> Json:
        """Tell whether a compile of the spec can end: `{"passed": bool, "lines": [...]}`. Asks each model of
        the spec one tiny call, and waits for runners and workers for a minute or two."""
        usual = self.transport.http.timeout
        patient = httpx.Timeout(connect=usual.connect, read=PREFLIGHT_S, write=usual.write, pool=usual.pool)
        path = "/v1/specs/validate?preflight=true"
        answer: Json = (
            await self.transport.send("POST", path, json=await self.document(spec), timeout=patient)
        ).json()["preflight"]
        return answer

    async def cancel(self, id: str) -> Compile:
        return build(Compile, await self._post(f"/v1/compiles/{id}/cancel"))

    async def resume(self, id: str, *, budget_microusd: int | None = None) -> Compile:
        body = {} if budget_microusd is None else {"budget_microusd": budget_microusd}
        return build(Compile, await self._post(f"/v1/compiles/{id}/resume", body))

    async def steps(self, id: str) -> Sequence[Step]:
        return await self._all(Step, f"/v1/compiles/{id}/steps")

    async def slices(self, id: str) -> Sequence[Slice]:
        return await self._all(Slice, f"/v1/compiles/{id}/slices")

    def candidates(
        self, id: str, *, slice: str | None = None, state: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Candidate]:
        return self._pages(Candidate, f"/v1/compiles/{id}/candidates", limit=limit, slice=slice, state=state)

    def answers(
        self,
        id: str,
        *,
        wrong: bool | None = None,
        label: str | None = None,
        field: str | None = None,
        gold: str | None = None,
        predicted: str | None = None,
        check: str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[HeldoutAnswer]:
        """The held-out inputs with gold and the answer, in order. `gold` and `predicted` are values that were confused:
        labels, or JSON texts. Raises Conflict with the code `not_evaluated` before the evaluation has ended."""
        wanted = {"label": label, "field": field, "gold": gold, "predicted": predicted, "check": check}
        truth = None if wrong is None else str(wrong).lower()
        return self._pages(HeldoutAnswer, f"/v1/compiles/{id}/answers", limit=limit, wrong=truth, **wanted)

    async def confusions(self, id: str) -> Json:
        """Tell what the held-out answers have wrong: fields or labels, the worst first, and values by how often one is
        taken for another."""
        confusions: Json = await self._get(f"/v1/compiles/{id}/confusions")
        return confusions

    async def receipts(self, id: str) -> Sequence[Receipt]:
        return await self._all(Receipt, f"/v1/compiles/{id}/receipts")

    async def usage(self, id: str) -> Sequence[UsageTotal]:
        return await self._all(UsageTotal, f"/v1/compiles/{id}/usage")


class Artifacts(Resource):
    def list(self, *, name: str | None = None, limit: int | None = None) -> AsyncIterator[Artifact]:
        return self._pages(Artifact, "/v1/artifacts", limit=limit, name=name)

    async def get(self, id: str) -> Artifact:
        return build(Artifact, await self._get(f"/v1/artifacts/{id}"))

    async def download(self, id: str, to: str | PathLike[str] | None = None) -> bytes:
        """The file's bytes, which have the announced sha256; written to `to` where given."""
        expected = (await self.get(id)).sha256
        data = (await self.transport.send("GET", f"/v1/artifacts/{id}/download")).content
        if hashlib.sha256(data).hexdigest() != expected:
            raise KolmError(f"The download of {id} does not have the announced sha256; try again.", code="bad_download")
        if to is not None:
            await asyncio.to_thread(Path(to).write_bytes, data)
        return data

    async def run(self, id: str, inputs: Sequence[str]) -> Run:
        run = build(Run, await self._post(f"/v1/artifacts/{id}/run", {"inputs": list(inputs)}))
        if len(run.outputs) != len(inputs):
            raise KolmError(f"The API gave {len(run.outputs)} outputs for {len(inputs)} inputs.", retryable=True)
        outputs = tuple((replace(one, input=text) for one, text in zip(run.outputs, inputs, strict=True)))
        return replace(run, outputs=outputs)

    async def predict(self, id: str, inputs: Sequence[str]) -> Sequence[Output]:
        return (await self.run(id, inputs)).outputs

    async def verify(self, id: str) -> Verification:
        return build(Verification, await self._post(f"/v1/artifacts/{id}/verify"))

    async def revoke(self, id: str, *, reason: str = "") -> Artifact:
        """There is no way back: a revoked artifact is run no more."""
        return build(Artifact, await self._post(f"/v1/artifacts/{id}/revoke", {"reason": reason} if reason else {}))


class Drafts(Resource):
    def list(
        self,
        *,
        family: str | None = None,
        state: str | None = None,
        search: str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[Draft]:
        return self._pages(Draft, "/v1/drafts", limit=limit, family=family, state=state, q=search)

    async def get(self, id: str) -> Draft:
        return build(Draft, await self._get(f"/v1/drafts/{id}"))

    async def stats(self, *, family: str | None = None, since: str | None = None) -> Sequence[Json]:
        stats: Sequence[Json] = (await self._get("/v1/drafts/stats", family=family, since=since))["data"]
        return stats

    async def verdicts(self, compile: str, *, slice: str | None = None, limit: int | None = None) -> Sequence[Json]:
        slices: Sequence[Json] = (await self._get(f"/v1/compiles/{compile}/drafts", slice=slice, limit=limit))["data"]
        return slices

    async def delete(self, id: str) -> Json:
        counts: Json = (await self.transport.send("DELETE", f"/v1/drafts/{id}")).json()
        return counts

    async def purge(self, *, family: str) -> Json:
        counts: Json = (await self.transport.send("DELETE", "/v1/drafts", query={"family": family})).json()
        return counts


class Uploads(Resource):
    def list(
        self, *, purpose: str | None = None, name: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Upload]:
        return self._pages(Upload, "/v1/uploads", limit=limit, purpose=purpose, name=name)

    async def get(self, id: str) -> Upload:
        return build(Upload, await self._get(f"/v1/uploads/{id}"))

    async def delete(self, id: str) -> None:
        """Delete an upload with its rows. Compiles that have ended keep what they made of it."""
        await self.transport.send("DELETE", f"/v1/uploads/{id}")

    async def learning_curve(self, id: str, *, timeout_s: float = 120.0) -> LearningCurve:
        """The accuracy over the number of the upload's examples, measured before anything is compiled, and what more of
        them would bring. A worker measures it once, in seconds; after `timeout_s` the answer may still be "pending"."""
        waited_s = 0.0
        while True:
            curve = build(LearningCurve, await self._get(f"/v1/uploads/{id}/learning_curve"))
            if curve.status != "pending" or waited_s >= timeout_s:
                return curve
            await self.transport.sleep(CURVE_PAUSE_S)
            waited_s += CURVE_PAUSE_S

    async def create(
        self, rows: Rows, *, purpose: str, columns: Mapping[str, str] | None = None, name: str | None = None
    ) -> Upload:
        """`rows`: a DataFrame, a list of dicts or texts, or a JSONL file; `columns` renames, {"message": "input"}. A
        spec may name the newest upload of a `name` instead of its id."""
        if isinstance(rows, Iterator):
            rows = [*rows]
        return await self.store(await asyncio.to_thread(jsonl_of, rows, columns=columns), purpose=purpose, name=name)

    async def store(
        self, lines: bytes, *, purpose: str, name: str | None = None, idempotency_key: str | None = None
    ) -> Upload:
        """Upload JSON lines that are ready; an upload that came under the same key before is given back."""
        answer = await self.transport.send(
            "POST",
            "/v1/uploads",
            query={"purpose": purpose, "name": name, "sha256": hashlib.sha256(lines).hexdigest()},
            content=lines,
            headers={"Content-Type": "application/x-ndjson"},
            idempotency_key=idempotency_key,
        )
        return build(Upload, answer.json())
