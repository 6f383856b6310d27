"""`kolm recipes FILE --llama-lookup OUT`: an artifact's pack as llama-server reads it."""

from pathlib import Path

from backend.domain.recipes.pack import InvalidPack, RecipePack, read_pack
from gpu_runners.cli.artifacts.loading import Refused, read_intact
from gpu_runners.cli.terminal import fail
from gpu_runners.config import base_dir
from gpu_runners.errors import JobFailed
from gpu_runners.models.causal_base import open_causal_base
from gpu_runners.models.chat import prompt_end
from gpu_runners.speculation.llama_cpp import PAIR, write_static_lookup


def write_lookup(file: str, out: str) -> int:
    """The exit status; says what was written, and how a server is started with it."""
    try:
        pack = read_pack(read_intact(file).members.get("recipes.json", b""))
        if not pack.recipes:
            return fail(f"{file} has no recipes that llama-server could read.")
        base = open_causal_base(pack.base, base_dir=base_dir())
        n_pairs = write_static_lookup(
            pack,
            Path(out),
            tokenizer_sha256=base.tokenizer_sha256,
            n_vocab=base.vocab_size,
            prompt_end=prompt_end(base, n_tokens=PAIR),
        )
    except Refused as error:
        return fail(str(error), code=error.exit_code)
    except (InvalidPack, JobFailed) as error:
        return fail(f"{file}: {error.message}")
    except OSError as error:
        return fail(f"{out} cannot be written ({error.strerror}).")
    print(f"{out}: what {n_pairs:,} pairs of tokens say of the next{_left_out(pack)}.")
    print(f"llama-server -m MODEL.gguf --spec-type ngram-cache --lookup-cache-static {out}")
    return 0


def _left_out(pack: RecipePack) -> str:
    return f"; {len(pack.copies):,} copy recipes are left out, for it cannot read the input" if pack.copies else ""
