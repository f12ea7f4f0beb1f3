"""What a request may take: items, tokens, bytes, time, and how much may wait.

Every bound is an option of `anchorscope serve`. A request beyond one of them is refused before the model sees it.
"""

from dataclasses import dataclass, fields

from anchorscope.errors import UserError

_CHARACTERS = 16  # of one token, at most, in texts that are worth reading: longer ones are refused unread
_BATCHES_WAITING = 16


@dataclass(frozen=True)
class Limits:
    """Bounds of one service."""

    items: int = 256
    """Items of one request."""
    item_tokens: int = 4096
    """Tokens of one item or chat, prompt and answer together."""
    answer_tokens: int = 512
    """Tokens that the model may write for one request."""
    body_bytes: int = 2 * 2**20
    """Bytes of one request's body."""
    queue_tokens: int | None = None
    """Tokens that may be waiting and under way; None: as many as 16 batches have."""
    queue_seconds: float = 3.0
    """Seconds that a request waits for its turn; where that does not come, it is told to come again."""
    batch_tokens: int | None = None
    """Tokens that are run together; None: what suits the device."""
    deadline: float = 60.0
    """Seconds from a request's last byte to its answer."""
    read_seconds: float = 15.0
    """Seconds that a client has for its headers, and again for its body."""
    requests: int = 256
    """Requests under way together."""

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if value is not None and not value > 0:
                raise UserError(f"The limit {one.name} is {value:g}, and a limit is above 0; give a larger one.")

    @property
    def item_characters(self) -> int:
        """Characters of one text: what is longer cannot fit the tokens, and is not looked at."""
        return self.item_tokens * _CHARACTERS

    def room(self, batch_tokens: int) -> int:
        """Tokens that may wait, for batches of this size."""
        return self.queue_tokens or max(_BATCHES_WAITING * batch_tokens, self.item_tokens)
