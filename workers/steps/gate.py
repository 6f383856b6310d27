"""The gate: floors first, then the K-score. Below it the compile ends here, says which floor failed and what is
cheapest to try; nothing is published. The quality card is made here, published or not."""

from backend.blobs import put_json
from backend.compiles.events import append_event, touch
from backend.domain.lifecycle import CompileStatus, StepName
from backend.domain.planning.step_outputs import EvaluationOut, GateOut
from workers.step.durable import CompileRun
from workers.step.result import StepDone, finish_step
from workers.training.card import card_of
from workers.training.heldout import evaluation_of, gate_of, public_evaluation, score_of
from workers.training.trials import chosen_trial


def run_gate(run: CompileRun) -> StepDone:
    chosen, evaluated = chosen_trial(run), run.output(EvaluationOut)
    measured = chosen.measured
    evaluation = evaluation_of(run, measured)
    score = score_of(run, evaluation, measured, chosen.trained)
    decision = gate_of(run, measured, evaluation, score, chosen.trained, ranks=chosen.ranks)
    k_json, gate_json = score.to_json(), decision.to_json()
    k_ppm = score.composite_ppm
    with run.transaction() as fenced:
        card = card_of(run, fenced.compile, evaluation, measured, score).to_json()
        figures = public_evaluation(run, evaluation, measured) | evaluated.competition | {"card": card}
        touch(fenced.compile, k_score_ppm=k_ppm, evaluation=figures, gate=gate_json)
        data = {"passed": decision.passed, "k_score_ppm": k_ppm, "gate": gate_json}
        append_event(run.tenant_id, run.compile_id, "gate.decided", data)
        done = StepDone(
            inputs=evaluated.digests(),
            output=GateOut(
                k_score_sha256=put_json(run.tenant_id, k_json),
                gate_sha256=put_json(run.tenant_id, gate_json),
                passed=decision.passed,
                k_score=k_json,
                gate=gate_json,
                card=card,
            ),
            ends=None if decision.passed else CompileStatus.GATE_FAILED,
        )
        finish_step(run, fenced, StepName.GATE, done)
    return done
