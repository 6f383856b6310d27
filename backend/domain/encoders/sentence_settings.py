"""The files of sentence-transformers beside an encoder's weights, read into what has to be computed.

    modules.json                       the modules in their order: Transformer, Pooling, and Normalize or not
    <n>_Pooling/config.json            which hidden states become the vector
    sentence_bert_config.json          max_seq_length; TRANSFORMER_FILES are its names
    config_sentence_transformers.json  prompts, default_prompt_name

Vectors are brought to unit length whether there is a Normalize or not: distances are cosines, and heads stand on unit
rows. A module that would change the vector otherwise (Dense, LayerNorm) is refused, never left out in silence. An
encoder without these files is pooled by the mean, as sentence-transformers does it. Formats: sentence-transformers 6.2
(which writes `pooling_mode`) and those before it (which wrote one `pooling_mode_*` a mode).
"""

import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeGuard

from backend.domain.encoders.card_prefixes import Use, card_prefix
from backend.domain.errors import InvalidInput

ReadJson = Callable[[str], Any]  # a file's path inside the encoder's folder to its JSON; None where it is not there

MAX_PREFIX = 1_000  # characters
# the names of one file in sentence-transformers 6.2, which takes the first that says anything
TRANSFORMER_FILES = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
_POOLINGS_BEFORE = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
# models whose first position is the padding token's id + 1, so that as many fewer tokens fit
_POSITIONS_AFTER_PADDING = frozenset(
    {"camembert", "data2vec-text", "mpnet", "roberta", "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "xmod"}
)


class Pooling(StrEnum):
    """The way in which the hidden states of a text's tokens become one vector. The names are sentence-transformers'."""

    MEAN = "mean"
    CLS = "cls"  # the first token's
    MAX = "max"
    MEAN_SQRT_LEN = "mean_sqrt_len_tokens"  # at unit length the same as mean
    WEIGHTED_MEAN = "weightedmean"  # token i weighs i, from 1
    LAST_TOKEN = "lasttoken"


class UnsupportedEncoder(InvalidInput):
    code = "base_unsupported"


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceSettings:
    """`prefix` stands before each text and is read with it. `max_tokens` is the most that the encoder reads of prefix
    and text together, special tokens included; None: no file limits it."""

    pooling: Pooling = Pooling.MEAN
    prefix: str = ""
    max_tokens: int | None = None
    lowercase: bool = False


def read_settings(name: str, use: Use, read: ReadJson) -> SentenceSettings:
    """The settings of the encoder `name`. Raises UnsupportedEncoder with a sentence for the tenant."""
    modules = read("modules.json")
    pooling, reads_prompt = _pooling(name, modules, read)
    prefix = read_prefix(name, use, read("config_sentence_transformers.json"))
    if prefix and not reads_prompt:
        raise _refusal(name, "leaves its prompt out of the pooling (include_prompt is false)")
    bert = next((values for file in TRANSFORMER_FILES if (values := _object(read(file)))), {})
    return SentenceSettings(
        pooling=pooling, prefix=prefix, max_tokens=_max_tokens(bert, read), lowercase=bert.get("do_lower_case") is True
    )


def readable_tokens(config: Mapping[str, Any]) -> int | None:
    """The most tokens that positions exist for, by the encoder's config.json; None: as many as one likes."""
    most = config.get("max_position_embeddings")
    if not _is_count(most):
        return None
    if config.get("model_type") in _POSITIONS_AFTER_PADDING:
        padding = config.get("pad_token_id")
        return most - (padding if type(padding) is int else 1) - 1
    return most


def pooling_file(modules: Any) -> str | None:
    """The file that a modules.json names for its pooling, by its path inside the encoder's folder; None where it names
    none, or one outside that folder."""
    paths = [path for kind, path in _kinds_and_paths(modules) if kind == "Pooling"]
    file = posixpath.normpath(f"./{paths[0]}/config.json") if paths else ".."
    return None if file.startswith("..") else file


def _kinds_and_paths(modules: Any) -> list[tuple[str, str]]:
    entries = [_object(row) for row in modules] if isinstance(modules, list) else []
    return [(_module_kind(str(row.get("type", ""))), str(row.get("path", ""))) for row in entries]


def _pooling(name: str, modules: Any, read: ReadJson) -> tuple[Pooling, bool]:
    """(pooling, whether the prompt's tokens are pooled too)."""
    if modules is None:
        return Pooling.MEAN, True
    rows = _kinds_and_paths(modules)
    kinds = [kind for kind, _ in rows]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise _refusal(name, f"is made of the modules {', '.join(kinds) or 'none'}, not Transformer and Pooling")
    if rows[0][1] not in ("", "0_Transformer"):
        raise _refusal(name, f"has its weights in the folder {rows[0][1]!r}")
    file = pooling_file(modules)
    config = None if file is None else read(file)
    if not isinstance(config, Mapping):
        raise _refusal(name, f"has no {rows[1][1]}/config.json, which its modules.json names")
    modes = _modes(config)
    if len(modes) != 1 or modes[0] not in set(Pooling):
        raise _refusal(name, f"has the pooling {' + '.join(modes)}")
    return Pooling(modes[0]), config.get("include_prompt") is not False


def _module_kind(kind: str) -> str:
    """The name of a module of sentence-transformers; another's (`custom_st.Transformer`) as it stands: code of the
    encoder's own repository."""
    return kind.rsplit(".", 1)[-1] if kind.startswith("sentence_transformers.") else kind


def _modes(config: Mapping[str, Any]) -> Sequence[str]:
    named = config.get("pooling_mode")
    if isinstance(named, str):
        return [named]
    if isinstance(named, list):
        return [str(mode) for mode in named]
    return [mode for key, mode in _POOLINGS_BEFORE.items() if config.get(key) is True] or [Pooling.MEAN]


def read_prefix(name: str, use: Use, config: Any) -> str:
    """The prompt of config_sentence_transformers.json (None: no such file) that is named for the use, else its default
    one, else the card's. Raises UnsupportedEncoder for one of more than MAX_PREFIX characters."""
    values = _object(config)
    prompts = _object(values.get("prompts"))
    for_use = next((key for key in prompts if str(key).lower() == use), None)
    key = values.get("default_prompt_name") if for_use is None else for_use
    named = prompts.get(key) if isinstance(key, str) else None
    prefix = named if isinstance(named, str) else card_prefix(name, use)
    if len(prefix) > MAX_PREFIX:
        raise _refusal(name, f"has a prompt of {len(prefix):,} characters")
    return prefix


def _max_tokens(bert: Mapping[str, Any], read: ReadJson) -> int | None:
    declared = bert.get("max_seq_length")
    if not _is_count(declared):
        declared = _object(read("tokenizer_config.json")).get("model_max_length")
    return declared if _is_count(declared) and declared < 1 << 24 else None


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _is_count(value: Any) -> TypeGuard[int]:
    return type(value) is int and value > 0


def _refusal(name: str, why: str) -> UnsupportedEncoder:
    return UnsupportedEncoder(
        f"The encoder {name!r} {why}, which kolm does not compute. Use one of Transformer, one pooling and, if "
        "anything, Normalize."
    )
