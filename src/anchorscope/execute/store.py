"""What workers' results are kept in on their way; whoever runs a pass says where that is."""

from typing import Protocol, runtime_checkable

from anchorscope.execute.content_hash import Body


@runtime_checkable
class Store(Protocol):
    """Where results of shards are kept while a step is under way."""

    def read(self, name: str) -> Body | None:
        """A shard's packed part; None where it is missing."""

    def write(self, name: str, body: Body, sha256: str | None = None) -> None:
        """Keeps it; `sha256` is its hash, where that is known."""
