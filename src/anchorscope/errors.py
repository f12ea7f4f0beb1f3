"""Mistakes of the user, told in one line: what is wrong, what was found, what is allowed, what to do next.

Every door (the command line, the Python call) lets a `UserError` through as it is: the command prints its one line and
leaves with exit code 2. `Incomplete` is no mistake, and leaves with exit code 3. Any other exception is a mistake of
ours and keeps its traceback.
"""

import difflib
from collections.abc import Iterable

_LONGEST = 200  # letters of a name that a message repeats


class UserError(Exception):
    """A mistake that the user can mend; its text is the whole message."""

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: the one line, as everywhere."""
        return [f"{type(self).__name__}: {self}"]


class TooFewAnswers(UserError):
    """A dataset gave too few true or too few false answers; the others of a run can go on without it."""


class Incomplete(Exception):
    """Work that could not be ended for want of workers: exit code 3; what is done is kept, the same command goes on.

    Its text is the whole message.
    """


class MemoryRanOut(Exception):
    """A planned batch does not fit into memory: its pass has to be planned anew, with fewer tokens together."""


class InterventionNotApplied(RuntimeError):
    """A cut that was asked for did not happen. Never the user's fault: a flat curve would look like a finding."""


def unknown(kind: str, found: str, allowed: Iterable[str], then: str = "") -> UserError:
    """The error for a name that is not among the allowed ones, with the nearest allowed name as a hint."""
    names = sorted(allowed)
    found = found if len(found) <= _LONGEST else f"{found[: _LONGEST - 1]}…"
    near = difflib.get_close_matches(found.lower(), names, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    after = f" {then}" if then else ""
    return UserError(f"Unknown {kind} {found!r}; allowed: {', '.join(names)}.{hint}{after}")
