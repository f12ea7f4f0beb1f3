"""Fonts in a PDF: outlines and widths, and none of the tables that only shape running text.

Matplotlib places every glyph itself, and fontTools takes half of the time of a PDF to cut those tables to size.
"""

from collections.abc import Iterator
from contextlib import contextmanager

_SHAPING = ("GDEF", "GPOS", "GSUB", "MATH")


@contextmanager
def outlines_only() -> Iterator[None]:
    """While it lasts, fonts are embedded without their tables for shaping; where fontTools has no such list, whole."""
    from fontTools.subset import Options  # type: ignore[import-untyped]  # comes with matplotlib

    usual = getattr(Options, "_drop_tables_default", None)
    if not isinstance(usual, list):
        yield
        return
    Options._drop_tables_default = [*usual, *_SHAPING]
    try:
        yield
    finally:
        Options._drop_tables_default = usual
