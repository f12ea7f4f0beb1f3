"""What the Tab key offers for the values of options: the same lists that the options are checked against."""

from collections.abc import Callable, Iterable, Sequence


def one_of(known: Iterable[str]) -> Callable[[str], list[str]]:
    """One of these words."""
    words = list(known)

    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return complete


def several_of(known: Iterable[str]) -> Callable[[str], list[str]]:
    """Some of these words, with commas: those that stand there already are not offered again."""
    words: Sequence[str] = list(known)

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        taken = before.split(",")
        return [before + comma + word for word in words if word.startswith(last) and word not in taken]

    return complete
