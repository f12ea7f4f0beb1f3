"""What a coordinator has seen and done, for the manifest and the line that tells how far it is."""

from dataclasses import dataclass, fields


@dataclass
class Counts:
    """Added up over all passes of a coordinator."""

    workers: int = 0
    """Workers that are there now."""
    done: int = 0
    """Shards."""
    retried: int = 0
    """How often a shard was handed out again."""
    lost: int = 0
    """Workers that died, took too long, or never began."""
    refused: int = 0
    """Workers that were not admitted."""
    duplicates: int = 0
    """Second results of a shard, equal to the first."""
    bytes_sent: int = 0
    bytes_received: int = 0
    seconds: float = 0.0
    """Spent by the coordinator itself, not waiting for workers."""

    def since(self, before: "Counts") -> "Counts":
        """What came on top of earlier counts; workers are those that are there now."""
        return Counts(self.workers, *(getattr(self, name) - getattr(before, name) for name in _ADDED_UP))


_ADDED_UP = [one.name for one in fields(Counts) if one.name != "workers"]
