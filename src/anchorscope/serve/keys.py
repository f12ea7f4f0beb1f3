"""Who may ask: keys from a file, one a line, compared in constant time.

Only hashes of keys are kept. Every key is compared, whichever fits, so that the time tells nothing of where one began
to differ, or of which one it was.
"""

import hashlib
import hmac
import ipaddress
from pathlib import Path

from anchorscope.errors import UserError
from anchorscope.files import read_regular

SHORTEST = 16
"""Characters of a key: fewer can be guessed."""
_MOST_BYTES = 2**20
LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Names of this machine that only it can reach."""


class Keys:
    """The keys of a service; without any, whoever reaches it may ask."""

    def __init__(self, keys: tuple[str, ...] = ()) -> None:
        self._hashes = tuple(_hash(key.encode()) for key in keys)

    def __bool__(self) -> bool:
        return bool(self._hashes)

    def allow(self, authorization: bytes | None) -> bool:
        """Whether a header `Authorization: Bearer KEY` has one of the keys."""
        if not self._hashes:
            return True
        kind, _, key = (authorization or b"").strip().partition(b" ")
        given = _hash(key.strip())
        found = False
        for one in self._hashes:
            found |= hmac.compare_digest(one, given)
        return found and kind.lower() == b"bearer"


def _hash(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def read_keys(path: Path) -> Keys:
    """The keys of a file; blank lines and those that begin with # are left out."""
    try:
        text = read_regular(path, _MOST_BYTES).decode("utf-8")
    except OSError as error:
        raise UserError(f"--keys-file {str(path)!r} cannot be read ({error.strerror}); give a file of keys.") from None
    except UnicodeDecodeError:
        raise UserError(f"--keys-file {str(path)!r} is no text in UTF-8; write one key a line.") from None
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
    keys = [(number, line) for number, line in lines if line and not line.startswith("#")]
    for number, key in keys:
        if len(key) < SHORTEST or not key.isascii() or " " in key:
            raise UserError(
                f"--keys-file {str(path)!r}, line {number}: a key has at least {SHORTEST} letters, digits or signs of "
                f"ASCII and no blank; make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
            )
    if not keys:
        raise UserError(f"--keys-file {str(path)!r} has no key; write one a line, or leave the option out.")
    return Keys(tuple(key for _, key in keys))


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host in LOOPBACK:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def refuse_open_door(host: str, keys: Keys) -> None:
    """A service that others can reach has keys."""
    if not is_loopback(host) and not keys:
        raise UserError(
            f"--host {host!r} lets other machines in, and there are no keys; add --keys-file FILE with one key a line, "
            f"or leave --host out to serve this machine alone."
        )
