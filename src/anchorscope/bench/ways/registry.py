"""The ways by name, made when they are first needed: a way that is not installed says how to get it."""

from importlib import import_module
from importlib.util import find_spec

from anchorscope.bench.ways.way import CannotDo, Way
from anchorscope.models.language_model import LanguageModel

HOMES = {
    "anchorscope": ("own", "Own", None),
    "plain": ("plain", "Plain", None),
    "plain-batched": ("plain_batched", "PlainBatched", None),
    "transformer-lens": ("with_transformer_lens", "WithTransformerLens", "transformer_lens"),
    "nnsight": ("with_nnsight", "WithNnsight", "nnsight"),
}
"""File, class, and the package that a way needs beyond this one's own."""


def is_foreign(name: str) -> bool:
    """Whether a way is another library's."""
    return HOMES[name][2] is not None


def make(name: str, lm: LanguageModel) -> Way:
    """A way, ready to run on a loaded model."""
    file, kind, needs = HOMES[name]
    if needs is not None and find_spec(needs) is None:
        raise CannotDo(f"{needs} is not installed; get it with: pip install 'anchorscope[bench]'")
    try:
        way: Way = getattr(import_module(f"anchorscope.bench.ways.{file}"), kind)(lm)
    except ImportError as error:
        raise CannotDo(f"{needs or name} cannot be imported here ({str(error).splitlines()[0]})") from error
    return way
