"""A folder as a user names it."""

from pathlib import Path

from anchorscope.errors import UserError


def named_folder(given: str | Path) -> Path:
    """The folder of that name; an empty name, which a shell makes of a variable that is not set, is refused."""
    if not str(given).strip():
        raise UserError(f"The folder's name is empty ({str(given)!r}); give one with --out, or '.' for this folder.")
    return Path(given)
