"""The small model that drafts for a base: the one that was named, where it is here and of the same tokenizer."""

import logging
from pathlib import Path

from backend.domain.serving.pairings import pick_draft
from gpu_runners.errors import JobFailed
from gpu_runners.models.causal_base import CausalBase, open_causal_base

log = logging.getLogger("kolm.serving")


def draft_base(base: CausalBase, name: str, *, base_dir: Path | None) -> CausalBase | None:
    """None where there is none that fits, with a warning that says why: then nothing is drafted by a model."""
    try:
        draft = open_causal_base(name, base_dir=base_dir)
    except JobFailed as error:
        log.warning("%r does not draft for %r: %s", name, base.name, error.message)
        return None
    picked = pick_draft(base.name, base.tokenizer_sha256, draft.tokenizer_sha256, named=name)
    if picked.draft is None:
        log.warning("%r does not draft for %r: %s", name, base.name, picked.reason)
        return None
    return draft
