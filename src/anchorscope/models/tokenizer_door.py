"""A model's tokenizer, looked at before transformers builds it, and once it is there.

Before: sizes of its files, and which class is to read them, since `tokenizer_class` may name any class of the library,
also one that loads weights or asks a server. `tokenizer.json` can describe steps that each double a text. After: it
must give the characters of its tokens, and no token that the model has no embedding for.
"""

from base64 import b64decode
from collections.abc import Iterator
from math import ceil, prod
from pathlib import Path
from typing import Any

from anchorscope.models.limits import CONFIG_BYTES, STOPS, TEXT_GROWTH, TOKENIZER_BYTES, TOKENIZER_STEPS
from anchorscope.models.plain_files import Unfit, read_object, size_within

_SETTINGS = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "generation_config.json")
_LISTS = ("vocab.json", "merges.txt", "vocab.txt", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model")
_TEXTS = ("chat_template.jinja", "chat_template.json", "processor_config.json", "tekken.json")
_STEPS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")


def check_files(folder: Path, config: dict[str, Any]) -> None:
    """Refuses files beside a model's weights that must not reach transformers; `config` is the model's own."""
    found = {name: read_object(folder / name, TOKENIZER_BYTES) for name in _SETTINGS if _is_there(folder / name)}
    for name in (*_LISTS, *_TEXTS):
        if _is_there(folder / name):
            size_within(folder / name, TOKENIZER_BYTES if name in _LISTS else CONFIG_BYTES)
    settings = found.get("tokenizer_config.json", {})
    if settings.get("fast_tokenizer_files") is not None:
        raise Unfit("tokenizer_config.json names other files to be read (fast_tokenizer_files), which is not done")
    _check_class("tokenizer_config.json", settings.get("tokenizer_class"))
    _check_class("config.json", config.get("tokenizer_class"))
    _check_stops(found.get("generation_config.json", {}))
    if _is_there(folder / "tokenizer.json"):
        _check_steps(read_object(folder / "tokenizer.json", TOKENIZER_BYTES))


def check_usable(tokenizer: Any, text: Any, needs_bos: bool) -> None:
    """Refuses a tokenizer without the characters of its tokens, or with tokens that the model has no embedding for.

    Added tokens beyond the embedding are let through, since models have them for pictures: no text becomes one unless
    it spells it out, which is told when it is asked. `text` is the configuration of the text model.
    """
    ids = tokenizer("a b").input_ids if getattr(tokenizer, "is_fast", False) and len(tokenizer) else []
    if not ids:
        raise Unfit("a fast one, which knows the characters of its tokens, is needed")
    rows = int(text.vocab_size)
    largest = max(tokenizer.backend_tokenizer.get_vocab(with_added_tokens=False).values(), default=0)
    first = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else text.bos_token_id
    beyond = max(largest, *ids, first if needs_bos and first is not None else 0)
    if beyond >= rows:
        raise Unfit(f"it has a token number {beyond}, and the model has embeddings for {rows:,} tokens")


def _is_there(path: Path) -> bool:
    """Whether something has this name that can be opened: a link that leads nowhere counts as nothing."""
    try:
        return path.exists()
    except (OSError, RuntimeError):  # a circle of links
        return False


def _check_class(file: str, name: Any) -> None:
    """Only what is a tokenizer in the library may be named; a name that it does not know means the plain one."""
    if name is None:
        return
    if not isinstance(name, str) or not name.isidentifier() or not ("Tokenizer" in name or name.endswith("Backend")):
        raise Unfit(f"{file} says tokenizer_class = {str(name)[:60]!r}; allowed: the name of a tokenizer's class")
    from transformers import PreTrainedTokenizerBase
    from transformers.models.auto.tokenization_auto import tokenizer_class_from_name

    found = tokenizer_class_from_name(name)
    if found is not None and not (isinstance(found, type) and issubclass(found, PreTrainedTokenizerBase)):
        raise Unfit(f"{file} says tokenizer_class = {name[:60]!r}, which is no tokenizer that reads a vocabulary")


def _check_stops(settings: dict[str, Any]) -> None:
    stops = settings.get("eos_token_id")
    ids = stops if isinstance(stops, list) else [stops]
    if len(ids) > STOPS or not all(one is None or (type(one) is int and -1 <= one < 1 << 31) for one in ids):
        raise Unfit(f"generation_config.json says eos_token_id = {str(stops)[:60]}; allowed: at most {STOPS} token ids")


def _check_steps(content: dict[str, Any]) -> None:
    """Refuses texts that would grow without bounds on their way through a tokenizer."""
    for part in _STEPS:
        steps = list(_steps(content.get(part)))
        if len(steps) > TOKENIZER_STEPS:
            raise Unfit(f"tokenizer.json has {len(steps):,} steps in {part}; allowed: at most {TOKENIZER_STEPS}")
        if not all(_is_whole_table(step) for step in steps):
            raise Unfit(f"tokenizer.json has a damaged table of characters ({part})")
        if prod(_growth(step) for step in steps) > TEXT_GROWTH:
            raise Unfit(f"tokenizer.json makes a text more than {TEXT_GROWTH} times longer ({part})")


def _steps(part: Any) -> Iterator[dict[str, Any]]:
    """A step, or the steps of a sequence of steps, which may again be sequences."""
    waiting = [part]
    while waiting:
        step = waiting.pop()
        if isinstance(step, list):
            waiting.extend(step)
        elif isinstance(step, dict):
            yield step
            waiting.extend(
                step.get(name) for name in ("normalizers", "pretokenizers", "processors", "decoders") if name in step
            )


def _is_whole_table(step: dict[str, Any]) -> bool:
    """Whether a precompiled table of characters holds as much as it says; a damaged one breaks the library."""
    if step.get("type") != "Precompiled":
        return True
    try:
        table = b64decode(step["precompiled_charsmap"], validate=True)
    except (KeyError, TypeError, ValueError):
        return False
    return len(table) >= 4 and int.from_bytes(table[:4], "little") <= len(table) - 4


def _growth(step: dict[str, Any]) -> int:
    """At most how many times longer a text of some letters becomes, or how much is added to it."""
    added = max(
        (len(text) for name in ("content", "prepend", "prefix") if isinstance(text := step.get(name), str)), default=1
    )
    pattern = step.get("pattern")
    if isinstance(pattern, dict) and isinstance(replaced := pattern.get("String"), str):
        added = ceil(added / max(1, len(replaced)))
    tokens = step.get("special_tokens")
    if isinstance(tokens, dict):  # a template: so many tokens before and after every text
        longest = max(
            (len(ids) for one in tokens.values() if isinstance(one, dict) and isinstance(ids := one.get("ids"), list)),
            default=1,
        )
        template = step.get("single")
        added = max(added, longest * (len(template) if isinstance(template, list) else 1))
    return max(1, added)
