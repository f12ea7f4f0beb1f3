"""Lists that a cell holds as text: `["a", "b"]` as JSON, `['a', 'b']` as Python writes it (DPR, data frames)."""

import ast
import json
import re
import warnings

_STRING = r"""(?:'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+")"""
_STRINGS = re.compile(_STRING, re.DOTALL)
_PYTHON_LIST = re.compile(rf"\[\s*(?:{_STRING}\s*(?:,\s*{_STRING}\s*)*+,?\s*)?\]", re.DOTALL)


def list_from_text(text: str) -> object:
    """What the text says as JSON, or the strings of a Python list of nothing but strings; None if it is neither."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return [_literal(match.group()) for match in _STRINGS.finditer(text)] if _PYTHON_LIST.fullmatch(text) else None


def _literal(quoted: str) -> str:
    """What a string literal stands for; one that Python would not accept stands for what is between its quotes."""
    if "\\" not in quoted:
        return quoted[1:-1]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an escape that means nothing ("\d") is kept as it is
            return str(ast.literal_eval(quoted))
    except (SyntaxError, ValueError):
        return quoted[1:-1]
