"""Messages to a person, on standard error: nothing in them steers the terminal."""

from rich.console import Console

console = Console(stderr=True)
"""For people; standard output is kept for results."""
_JOINERS = "\u200c\u200d"  # they make letters of some scripts, and steer nothing


def say(text: str, quiet: bool = False) -> None:
    """One message on standard error; never wrapped and never read as markup, so that paths survive."""
    if not quiet:
        lines = "\n".join(map(harmless, text.split("\n")))
        console.print(lines, markup=False, highlight=False, soft_wrap=True)


def harmless(text: str | None) -> str:
    """The text with a sign for every letter that would steer a terminal; as long as before, so that places hold."""
    return "".join(map(_sign, text or ""))


def _sign(letter: str) -> str:
    if letter.isprintable() or letter in _JOINERS:
        return letter
    if letter.isspace():
        return " "
    return chr(0x2400 + ord(letter)) if letter < " " else "\ufffd"


def duration(seconds: float) -> str:
    """A span of time as a person says it: `25 s`, `3 min`, `2 h 10 min`."""
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
