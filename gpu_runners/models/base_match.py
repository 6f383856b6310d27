"""Whether an adapter belongs to the base of this machine."""

from gpu_runners.errors import JobFailed
from gpu_runners.models.causal_adapter import AdapterConfig
from gpu_runners.models.causal_base import CausalBase


def check_fit(config: AdapterConfig, base: CausalBase) -> None:
    """Raises JobFailed(base_mismatch): trained on another base, or on other tokens."""
    for what, wanted, here in (
        ("base", config.base_sha256, base.sha256),
        ("tokenizer", config.tokenizer_sha256, base.tokenizer_sha256),
    ):
        if wanted != here:
            raise JobFailed(
                f"The adapter needs the {what} {wanted[:12]}… of {config.base!r}; on this machine it is {here[:12]}….",
                code="base_mismatch",
            )
