"""One request to a student on an encoder: waits for its turn, and is noted before its answer goes out."""

from backend.domain.serving.wire import Grant
from gpu_runners.artifacts.encoder_student import StudentAnswer, rule_answer
from gpu_runners.models.protocol import Counts, FinishReason, Overloaded
from gpu_runners.serving.openai.body_threads import in_turn
from gpu_runners.serving.openai.responder import Refusal
from gpu_runners.serving.server_context import FAILED, Meter, ServerContext
from gpu_runners.serving.students import Student


class StudentCall:
    def __init__(self, context: ServerContext, *, grant: Grant, token: str, student: Student) -> None:
        self._context, self._grant, self._token, self._student = context, grant, token, student

    async def answer(self, text: str) -> StudentAnswer:
        """The artifact's rules answer at once, its model in the tenant's turn. Raises Refusal, Overloaded."""
        ruled = await in_turn(len(text), lambda: rule_answer(self._student.model, text))
        if ruled is not None:
            self._check_revoked()
            Meter(self._context, self._grant, self._token).rule(ruled.latency_us)
            return ruled
        try:
            return await self._model_answer(text)
        except (Refusal, Overloaded) as refusal:
            self._context.refusals[getattr(refusal, "code", "overloaded")] += 1
            raise

    async def _model_answer(self, text: str) -> StudentAnswer:
        context, grant = self._context, self._grant
        context.check_open()
        async with (
            context.scheduler.turn(grant.tenant, limit=max(1, grant.max_concurrent)),
            context.store.using(grant, self._token) as student,
        ):
            assert isinstance(student, Student)
            assert context.students is not None
            meter = Meter(context, grant, self._token)
            try:
                answered = await context.students.answer(student, text)
                self._check_revoked()
                meter.note(Counts(prompt_tokens=answered.n_read))
                meter.reason = str(FinishReason.STOP)
            except Exception:
                meter.reason = FAILED
                raise
            finally:
                meter.end()
        return answered

    def _check_revoked(self) -> None:
        if self._context.store.is_revoked(self._grant.sha256):
            raise Refusal(410, "artifact_revoked", "The artifact has been revoked.")
