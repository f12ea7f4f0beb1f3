"""Messages to a person, on standard error: nothing in them steers the terminal, and no encoding breaks them."""

import codecs

from rich.console import Console

console = Console(stderr=True)
"""For people; standard output is kept for results."""
_JOINERS = "\u200c\u200d"  # they make letters of some scripts, and steer nothing
_PLAIN = {
    "✓": "yes",
    "✗": "no",
    "Λ": "Lambda",
    "λ": "lambda",
    "Δ": "Delta ",
    "−": "-",
    "–": "-",
    "…": "...",
    "·": "-",
    "×": "x",
    "≥": ">=",
    "≤": "<=",
    "±": "+/-",
    "≈": "about ",
    "→": "->",
    "“": '"',
    "”": '"',
    "’": "'",
    "‘": "'",
    "\u00a0": " ",
    "\u202f": " ",
    "\u2009": " ",
    "⟦": "[",
    "⟧": "]",
    "━": "-",
    "•": "-",
    "┄": "-",
    "─": "-",
    "└": "+",
    "┤": "|",
    "│": "|",
    "↑": "^",
    "●": "o",
    "○": ".",
    "¹": "1",
    "²": "2",
}
"""Signs of this field in letters that every encoding has."""


def say(text: str, quiet: bool = False) -> None:
    """One message on standard error; never wrapped and never read as markup, so that paths survive."""
    if not quiet:
        lines = "\n".join(map(harmless, text.split("\n")))
        console.print(encodable(lines, encoding_of(console)), markup=False, highlight=False, soft_wrap=True)


def harmless(text: str | None) -> str:
    """The text with a sign for every letter that would steer a terminal; as long as before, so that places hold."""
    return "".join(map(_sign, text or ""))


def _sign(letter: str) -> str:
    if letter.isprintable() or letter in _JOINERS:
        return letter
    if letter.isspace():
        return " "
    return chr(0x2400 + ord(letter)) if letter < " " else "\ufffd"


def encoding_of(screen: Console) -> str:
    """What a console's letters are written in; rich itself tells that of a file only that it was given."""
    return getattr(screen.file, "encoding", None) or "utf-8"


def encodable(text: str, encoding: str) -> str:
    """The text as this encoding can write it: what it lacks is spelled out, or a question mark."""
    try:
        return text.encode(encoding, SPELLED).decode(encoding)
    except LookupError:
        return text


def _spelled_out(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_PLAIN.get(letter, "?") for letter in error.object[error.start : error.end]), error.end


SPELLED = "anchorscope.spelled"
"""What Python's streams and codecs call this way to treat letters that an encoding lacks."""
codecs.register_error(SPELLED, _spelled_out)


def duration(seconds: float) -> str:
    """A span of time as a person says it: `25 s`, `3 min`, `2 h 10 min`."""
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
