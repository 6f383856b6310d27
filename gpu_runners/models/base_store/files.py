"""The check that a folder holds a base that can be loaded: read from small files and from the heads of the weights, so
that it costs milliseconds whatever the base weighs.

A safetensors file begins with the length of its header and the header, which names each tensor's type, shape and place
(format description of the safetensors project, version 0.4); a file that ends before the last place is truncated. What
else a header must be (types that exist, places without gaps that hold their shapes) the format's own library says: the
loaders read with it.
"""

import json
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from gpu_runners.errors import JobFailed

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
_HEADER_MOST = 100_000_000  # bytes; the format's own limit
_NUMBERS = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "max_position_embeddings",
)
_LAYER = re.compile(r"\.(?:layers?|h)\.(\d+)\.")
_EMBEDDING = re.compile(r"(?:^|\.)(?:embed_tokens|word_embeddings|wte)\.weight$")


def weight_files(folder: Path) -> list[str]:
    """The names of the files that hold the weights, sorted: the shards that the index names, and the single file beside
    them where there is one, since loaders differ in which they take; without an index every safetensors file. Raises
    JobFailed(base_truncated) for an index that cannot be read."""
    if not (folder / INDEX).is_file():
        return sorted(path.name for path in folder.glob("*.safetensors"))
    shards = set(indexed_shards(folder))
    return sorted(shards | ({SINGLE} if (folder / SINGLE).is_file() else set()))


def indexed_shards(folder: Path) -> list[str]:
    """The shards of the folder's index. A name with a folder in it is refused: it would lead out of the base."""
    value = read_json(folder, INDEX).get("weight_map")
    names = list(value.values()) if isinstance(value, dict) else []
    if not names or not all(isinstance(n, str) and re.fullmatch(r"[\w.-]+\.safetensors", n) for n in names):
        raise _not_whole(folder, f"{INDEX} names no shards")
    return sorted(set(names))


def check_base(folder: Path, name: str) -> dict[str, list[int]]:
    """The shape of each tensor of a base that can be loaded. Raises JobFailed: unknown_base (no config, no safetensors
    weights), base_without_tokenizer, base_truncated, base_needs_remote_code, base_wrong_architecture."""
    if not (folder / "config.json").is_file():
        raise JobFailed(f"The base {name!r} has no config.json: it is no model's folder.", code="unknown_base")
    check_config(read_json(folder, "config.json"), name)
    check_tokenizer((folder / "tokenizer.json").is_file(), name)
    files = weight_files(folder)
    check_weights(bool(files), name)
    shapes: dict[str, list[int]] = {}
    for file in files:
        if not (folder / file).is_file():
            raise JobFailed(
                f"The base {name!r} is not whole: its index names {file!r}, which is not there.", code="base_truncated"
            )
        shapes |= _shapes(folder / file, name)
    check_architecture(read_json(folder, "config.json"), shapes, name)
    return shapes


def check_indexed_layers(folder: Path, name: str) -> None:
    """Compare the number of layers with what the weights' index names, where there is one: no weights are read. Raises
    JobFailed(base_wrong_architecture)."""
    if (folder / INDEX).is_file():
        names = read_json(folder, INDEX)["weight_map"]
        check_architecture(read_json(folder, "config.json"), {key: [] for key in names}, name)


def adapted_parameters(shapes: Mapping[str, list[int]]) -> int:
    """The parameters of an adapter for each rank: inputs and outputs of all linear layers inside the blocks."""
    return sum(sum(shape) for name, shape in shapes.items() if _LAYER.search(name) and len(shape) == 2)


def check_weights(has_safetensors: bool, name: str) -> None:
    if not has_safetensors:
        raise JobFailed(
            f"The base {name!r} has no safetensors weights; pickled ones are not loaded. Use a revision or a copy of "
            "it that has them.",
            code="unknown_base",
        )


def check_tokenizer(has_tokenizer: bool, name: str) -> None:
    if not has_tokenizer:
        raise JobFailed(
            f"The base {name!r} has no tokenizer.json: slow tokenizers are not loaded. Use a base with a fast "
            "tokenizer.",
            code="base_without_tokenizer",
        )


def check_config(config: Mapping[str, Any], name: str) -> None:
    """Refuse a base whose code lies in its repository: none of it is ever run. Many name such code (`auto_map`) for
    older libraries and are known natively by now; those pass. A class of another name is another network, whatever
    `model_type` stands beside it (JinaBertModel of a `bert` has ALiBi for positions). Refuse sizes that are no numbers:
    the rest of a config is transformers' to read, which takes seconds to import."""
    named = config.get("auto_map")
    if named and not _is_native(str(config.get("model_type") or ""), named):
        raise JobFailed(
            f"The base {name!r} runs code of its own repository, which is never done here. Use a base whose "
            "architecture transformers knows.",
            code="base_needs_remote_code",
        )
    for key in _NUMBERS:
        if not isinstance(value := config.get(key), (int, list, type(None))) or isinstance(value, bool):
            raise wrong_architecture(name, f"config.json says {key} is {json.dumps(value)[:100]}")


def read_json(folder: Path, file: str) -> dict[str, Any]:
    """Raises JobFailed(base_truncated) for what is no whole JSON object."""
    value = _read_any(folder, file)
    if not isinstance(value, dict):
        raise _not_whole(folder, f"{file} is no JSON object")
    return value


def read_optional(folder: Path, file: str) -> Any:
    """The JSON of a file of the base, None where it is not there. Raises JobFailed(base_truncated)."""
    return None if ".." in file or not (folder / file).is_file() else _read_any(folder, file)


def _read_any(folder: Path, file: str) -> Any:
    try:
        return json.loads((folder / file).read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _not_whole(folder, f"{file} cannot be read") from error


def load_failed(name: str, folder: Path, error: Exception) -> JobFailed:
    """The refusal with the first line of the library's own reason, without this machine's folders."""
    why = str(error).strip().partition("\n")[0].replace(str(folder), name)[:200]
    return wrong_architecture(name, f"transformers does not load it ({type(error).__name__}{why and ': '}{why})")


def _is_native(model_type: str, auto_map: Any) -> bool:
    """Say whether transformers has the classes by which the base would be loaded. Those for other heads do not matter:
    nomic-embed names a NomicBertForPreTraining that nobody loads. Case does not either (MPT's MPTConfig)."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, MODEL_MAPPING_NAMES

    by_key = {
        "AutoConfig": CONFIG_MAPPING_NAMES,
        "AutoModel": MODEL_MAPPING_NAMES,
        "AutoModelForCausalLM": MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    }
    own = {key: auto_map[key] for key in by_key if key in auto_map} if isinstance(auto_map, Mapping) else {}
    return model_type in CONFIG_MAPPING_NAMES and all(
        str(name).rpartition(".")[2].casefold() in _class_names(by_key[key].get(model_type))
        for key, name in own.items()
    )


def _class_names(names: Any) -> set[str]:
    """The classes of one `model_type`: mostly one, and several where it has variants."""
    return {str(name).casefold() for name in (names if isinstance(names, (list, tuple)) else [names])}


def _shapes(path: Path, name: str) -> dict[str, list[int]]:
    """The shape of each tensor of one file."""
    size = path.stat().st_size
    try:
        header, end = _header(path, size)
        shapes = {key: list(value["shape"]) for key, value in header.items()}
    except (OSError, ValueError, struct.error, AttributeError, TypeError, LookupError, RecursionError) as error:
        raise JobFailed(
            f"The base {name!r} is not whole: {path.name} is no safetensors file.", code="base_truncated"
        ) from error
    if end != size:
        raise JobFailed(
            f"The base {name!r} is not whole: {path.name} has {size:,} bytes of {end:,}. Fetch it again, or use "
            "another revision.",
            code="base_truncated",
        )
    _check_header(path, name)
    return shapes


def _check_header(path: Path, name: str) -> None:
    try:
        with safe_open(path, "np"):
            pass
    except SafetensorError as error:
        raise JobFailed(
            f"The base {name!r} is not whole: the header of {path.name} does not describe its bytes "
            f"({str(error)[:200]}). Fetch it again, or use another revision.",
            code="base_truncated",
        ) from error


def _header(path: Path, size: int) -> tuple[dict[str, Any], int]:
    """The tensors that a file announces, and where the last one ends."""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        if length > min(size, _HEADER_MOST):
            raise ValueError("the header is longer than the file")
        header = json.loads(file.read(length))
    tensors = {key: value for key, value in header.items() if key != "__metadata__"}
    return tensors, 8 + length + max((value["data_offsets"][1] for value in tensors.values()), default=0)


def check_architecture(config: Mapping[str, Any], shapes: Mapping[str, list[int]], name: str) -> None:
    """Compare what the config declares with what the weights are: the width of the embedding, which some have of its
    own (ALBERT, ELECTRA, OPT), and how many layers. What is loaded is compared again, tensor by tensor, by
    `load_weights`."""
    width = config.get("embedding_size") or config.get("word_embed_proj_dim") or config.get("hidden_size")
    declared = [config.get("vocab_size"), width]
    for tensor, shape in shapes.items():
        if _EMBEDDING.search(tensor) and None not in declared and shape != declared and len(shape) == 2:
            raise wrong_architecture(name, f"config.json says {declared} and {tensor} has the shape {shape}")
    layers = {int(match[1]) for match in map(_LAYER.search, shapes) if match}
    n = config.get("num_hidden_layers")
    if isinstance(n, int) and layers and max(layers) + 1 < n:
        raise wrong_architecture(name, f"config.json says {n} layers and the weights have {max(layers) + 1}")


def wrong_architecture(name: str, why: str) -> JobFailed:
    return JobFailed(
        f"The base {name!r} is of another architecture than it declares: {why}. Use another revision or another base.",
        code="base_wrong_architecture",
    )


def _not_whole(folder: Path, why: str) -> JobFailed:
    return JobFailed(f"The base in {folder.name!r} is not whole: {why}.", code="base_truncated")
