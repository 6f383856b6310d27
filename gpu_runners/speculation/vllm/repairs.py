"""The repairs of what vLLM 0.32 leaves out or gets wrong beside drafts, each looked for before it is mended, in the
engine's process.

It tells a proposer the batch's tokens but not whose they are. As soon as one request is within a draft's length of the
context's end, it asks for no drafts at all and feeds every request a draft of zeros. And its CPU platform has three
faults: spreading each request's temperature, top-k and top-p over its drafted places writes into a copy that is dropped
(its issue 55005), so that sampled answers are not the model's; a top-k in a step without any draft raises, which ends
the engine; and so does a request with a seed whose prompt is read in parts, drafts or not. Elsewhere, and where a
version is free of them, nothing is touched.

`workers/teachers/vllm/proposer.py`, which is copied into a customer's image and so stands alone, mends the CPU's first
two faults too.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any


def hand_over(is_ours: Callable[[Any], bool]) -> None:
    """Have it that before each call a proposer that `is_ours` gets the model runner as `runner` and the drafted tokens
    by request that the step verified as `fed`, and it is always asked. Safe to do twice."""
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    original = GPUModelRunner.propose_draft_token_ids
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def propose_draft_token_ids(runner: Any, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        if is_ours(runner.drafter):
            runner.drafter.runner = runner
            runner.drafter.fed = scheduler_output.scheduled_spec_decode_tokens
        return original(runner, scheduler_output, *args, **kwargs)

    GPUModelRunner.propose_draft_token_ids = propose_draft_token_ids
    fits = GPUModelRunner._input_fits_in_drafter

    @functools.wraps(fits)
    def input_fits_in_drafter(runner: Any, metadata: Any) -> Any:
        """Our drafts end before the context does, request by request."""
        return metadata is not None if is_ours(runner.drafter) else fits(runner, metadata)

    GPUModelRunner._input_fits_in_drafter = input_fits_in_drafter


def repair_cpu_sampling() -> None:
    from vllm.platforms import current_platform
    from vllm.v1.sample import rejection_sampler

    if not current_platform.is_cpu():
        return
    if not spreads(rejection_sampler.expand_batch_to_tokens):
        rejection_sampler.expand_batch_to_tokens = spread
    if not takes_nothing(rejection_sampler.apply_top_k_top_p):
        rejection_sampler.apply_top_k_top_p = on_some_rows(rejection_sampler.apply_top_k_top_p)
    if not winds_back():
        _spare_generators()


def _spare_generators() -> None:
    """A prompt that is read in parts samples a token at each and drops all but the last. For the dropped ones vLLM
    winds the request's generator back, which a CPU's cannot do; here they are drawn without it."""
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    original = GPUModelRunner.sample_tokens
    if hasattr(original, "spares_generators"):
        return

    @functools.wraps(original)
    def sample_tokens(runner: Any, grammar_output: Any) -> Any:
        with spare(runner.input_batch.generators, runner.discard_request_mask.np[: runner.input_batch.num_reqs]):
            return original(runner, grammar_output)

    sample_tokens.spares_generators = True  # type: ignore[attr-defined]
    GPUModelRunner.sample_tokens = sample_tokens


@contextmanager
def spare(generators: dict[int, Any], is_dropped: Sequence[Any]) -> Iterator[None]:
    """The generators of dropped rows are away for a while."""
    kept = {i: generators.pop(i) for i, dropped in enumerate(is_dropped) if dropped and i in generators}
    try:
        yield
    finally:
        generators.update(kept)


def winds_back() -> bool:
    import torch

    try:
        torch.Generator().get_offset()
    except RuntimeError:
        return False
    return True


def spread(x: Any, cu_num_tokens: Any, num_tokens: int, replace_from: int = 0, replace_to: int = 0) -> Any:
    """[a, b] over the running counts [2, 3] is [a, a, b], `replace_from` become `replace_to`."""
    counts = cu_num_tokens.diff(prepend=cu_num_tokens.new_zeros(1))
    return x.where(x != replace_from, x.new_tensor(replace_to)).repeat_interleave(counts, output_size=num_tokens)


def spreads(function: Callable[..., Any]) -> bool:
    """Say whether `function` does what `spread` does."""
    import torch

    counts = torch.tensor([2, 3], dtype=torch.int32)
    for values in ([0.7, 1.3], [1.3, 0.7]):
        params = torch.tensor(values, dtype=torch.float32)
        if not torch.equal(function(params, counts, 3), spread(params, counts, 3)):
            return False
    return True


def takes_nothing(function: Callable[..., Any]) -> bool:
    """Say whether `function` takes logits of no rows."""
    import torch

    try:
        function(torch.zeros(0, 8), torch.zeros(0, dtype=torch.int32), None)
    except RuntimeError:
        return False
    return True


def on_some_rows(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def apply(logits: Any, k: Any, p: Any) -> Any:
        return function(logits, k, p) if logits.shape[0] else logits

    return apply
