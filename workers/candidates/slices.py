"""A slice as a row that is not saved yet, as the text that its vector is made of, and as the spec has it."""

from backend.compiles.models import Slice
from backend.domain.spec.parsing import LabelOutput, SliceSpec, Spec, label_names, slice_sizes
from backend.drafts.cache import SliceNames


def declare_slices(spec: Spec) -> list[Slice]:
    """The slices that the teacher fills, with N and K by their shares, as rows that are not saved yet."""
    if spec.captures is not None and not spec.slices:
        return []  # with production inputs and no slices asked for, the captures are the pool
    return [
        Slice(
            position=i,
            name=size.part.name,
            share_ppm=max(1, round(size.part.share * 1_000_000)),  # a share above 0 is never none
            hint=size.part.hint,
            exemplars=list(size.part.exemplars),
            label=size.part.label or "",
            n_candidates=size.n,
            k_requested=size.k,
            temperature_ppm=round(spec.sampling.temperature_inputs * 1_000_000),
        )
        for i, size in enumerate(slice_sizes(spec))
    ]


def slice_text(row: Slice) -> str:
    """The text whose vector stands for the slice. The task is not in it: what all slices share says nothing of which is
    near which."""
    return " ".join(part for part in (row.name.replace("_", " "), row.hint, *row.exemplars[:3]) if part)


def slice_names(spec: Spec, row: Slice) -> SliceNames:
    """The names by which the draft cache knows relatives of the slice."""
    labels = label_names(spec) if isinstance(spec.output, LabelOutput) else ()
    return SliceNames(name=row.name, label=row.label, labels=frozenset(labels))


def slice_spec(slice_row: Slice) -> SliceSpec:
    """The slice as the prompts take it."""
    return SliceSpec(
        name=slice_row.name, share=slice_row.share_ppm / 1_000_000, hint=slice_row.hint, label=slice_row.label or None
    )
