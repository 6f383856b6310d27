"""Slicing: the spec's slices as rows, gold split into training and held-out, captures gathered. Nothing is asked of the
teacher here."""

from backend.blobs import put_jsonl
from backend.compiles.models import Candidate, Compile, Slice
from backend.compiles.states import state_when_written
from backend.compiles.uploads.inputs import load_captures, load_gold, split
from backend.domain.answers.candidates import text_key
from backend.domain.canonical import sha256_of
from backend.domain.lifecycle import StepName
from backend.domain.planning.step_outputs import SlicingOut
from backend.domain.spec.gold import GoldSplit, drop_leaks
from backend.domain.spec.parsing import Example, Spec, canonical_spec, default_k_select
from backend.tenants.isolation import tenant_scope
from workers.candidates.slices import declare_slices, slice_text
from workers.embedding.protocol import Embedder
from workers.step.durable import CompileRun
from workers.step.embedders import embedder_of
from workers.step.result import StepDone, finish_step

CAPTURED = "captured"


def run_slicing(run: CompileRun) -> StepDone:
    with tenant_scope(run.tenant_id):
        gold = split(run.tenant_id, run.spec, load_gold(run.tenant_id, run.spec))
        captures = load_captures(run.tenant_id, run.spec)
    embedder = embedder_of(run)
    slices = [*declare_slices(run.spec), *_capture_slices(run.spec, captures)]
    for row, vector in zip(slices, embedder.embed([slice_text(row) for row in slices]), strict=True):
        row.embedding = vector.tobytes()
    with run.transaction() as fenced:
        done = _save(run, fenced.compile, slices, captures, gold, embedder)
        finish_step(run, fenced, StepName.SLICING, done)
    return done


def _capture_slices(spec: Spec, captures: list[str]) -> list[Slice]:
    if not captures:
        return []
    n = len(captures)
    return [
        Slice(
            position=1000,
            name=CAPTURED,
            share_ppm=1_000_000,
            hint="Production inputs, as captured.",
            is_captured=True,
            is_synthesized=True,
            n_candidates=n,
            n_generated=n,
            k_requested=min(n, spec.sampling.k_select or default_k_select(n)),
        )
    ]


def _save(
    run: CompileRun,
    compile: Compile,
    slices: list[Slice],
    captures: list[str],
    gold: GoldSplit[Example],
    embedder: Embedder,
) -> StepDone:
    for row in slices:
        row.tenant_id, row.compile = run.tenant_id, compile
    Slice.objects.bulk_create(slices)
    captured = next((row for row in slices if row.is_captured), None)
    if captured is not None:
        _save_captures(run, compile, captured, captures, gold)
    train, heldout = (
        put_jsonl(run.tenant_id, [{"input": e.input, "output": e.output} for e in side])
        for side in (gold.train, gold.heldout)
    )
    output = SlicingOut(
        gold_train=train,
        gold_heldout=heldout,
        n_slices=len(slices),
        n_gold_train=len(gold.train),
        n_gold_heldout=len(gold.heldout),
        n_captures=len(captures),
        embedder=embedder.identity,
        is_heldout_named=gold.is_named or None,
        n_gold_left_out=gold.n_left_out or None,
        slices=[
            {"name": s.name, "share_ppm": s.share_ppm, "n": s.n_candidates, "k_requested": s.k_requested}
            for s in slices
        ],
    )
    return StepDone(inputs={"spec": sha256_of(canonical_spec(run.spec))}, output=output)


def _save_captures(
    run: CompileRun, compile: Compile, row: Slice, captures: list[str], gold: GoldSplit[Example]
) -> None:
    """One that is gold too never reaches the teacher: held out it must not, and else its answer is known. One that is
    nearly held out would be labelled, paid for and left out of the training set."""
    keys = [text_key(text) for text in captures]
    clear = set(drop_leaks(captures, [e.input for e in gold.heldout]))
    known = {key: ["held_out_twin"] for i, key in enumerate(keys) if i not in clear}
    known |= {text_key(e.input): ["gold"] for e in gold.train}
    known |= {text_key(e.input): ["held_out"] for e in gold.heldout}
    Candidate.objects.bulk_create(
        [
            Candidate(
                tenant_id=run.tenant_id,
                compile=compile,
                slice=row,
                text=text,
                text_key=key,
                origin="capture",
                state=state_when_written(known.get(key)),
                reasons=known.get(key, []),
            )
            for text, key in zip(captures, keys, strict=True)
        ],
        ignore_conflicts=True,
        batch_size=1000,
    )
    row.n_rejected = sum(key in known for key in keys)
    row.save(update_fields=["n_rejected"])
