"""Which executor was asked for: `local`, `processes:N` or `ray[:ADDRESS]`, with how many workers. Imports no torch."""

import re
from dataclasses import dataclass

from anchorscope.errors import UserError

LOCAL = "local"
"""This process runs everything itself."""
EXECUTORS = (LOCAL, "processes", "ray")
LEASE = 600.0
"""Seconds that a worker has for one shard, where nobody says."""
_MOST_WORKERS = 100_000
_SHORTEST_LEASE, _LONGEST_LEASE = 1.0, 7 * 86400.0
_ALLOWED = "local, processes:N, ray (starts one on this machine), ray:HOST:PORT, ray:auto"


@dataclass(frozen=True)
class Choice:
    """What runs passes."""

    kind: str = "local"
    """One of `EXECUTORS`."""
    workers: int | None = None
    """How many were asked for; None for as many as there are devices."""
    address: str | None = None
    """Of a Ray cluster that is there; None to start one."""
    lease: float = LEASE
    """Seconds that a worker has for one shard."""
    mixed: bool = False
    """Whether workers may be of different numerics classes."""
    devices_per_worker: int = 1
    """GPUs that one worker owns; the layers of its model are spread over them."""

    @property
    def is_local(self) -> bool:
        """Whether this process runs everything itself."""
        return self.kind == "local"


def choose(
    executor: str = "local",
    workers: int | None = None,
    lease: float | None = None,
    mixed: bool = False,
    devices_per_worker: int | None = None,
) -> Choice:
    """From the options of the command; one line for what cannot be."""
    kind, _, rest = executor.partition(":")
    if kind not in EXECUTORS or (kind == "local" and rest):
        raise UserError(f"Executor {executor[:80]!r} is not known; allowed: {_ALLOWED}.")
    number, address = workers, None
    if kind == "processes" and rest:
        if not re.fullmatch(r"[0-9]{1,6}", rest):
            raise UserError(f"Executor {executor[:80]!r}: the number of processes is wanted, like processes:4.")
        if workers is not None and workers != int(rest):
            raise UserError(f"Executor {executor!r} and --workers {workers} disagree; give one of them.")
        number = int(rest)
    if kind == "ray" and rest:
        if rest != "auto" and not re.fullmatch(r"[A-Za-z0-9.\-\[\]:]{1,250}:[0-9]{1,5}", rest):
            raise UserError(f"Executor {executor[:80]!r}: a cluster's address is wanted, like ray:10.0.0.1:6379.")
        address = rest
    if number is not None and not 1 <= number <= _MOST_WORKERS:
        raise UserError(f"{number} workers were asked for; allowed: 1 to {_MOST_WORKERS:,}.")
    given = {"--workers": workers, "--lease": lease, "--devices-per-worker": devices_per_worker}
    named = [name for name, value in given.items() if value is not None]
    if kind == "local" and named:
        raise UserError(f"{named[0]} says how workers run, and the executor is local; add --executor processes:N.")
    if lease is not None and not _SHORTEST_LEASE <= lease <= _LONGEST_LEASE:
        raise UserError(f"A lease of {lease:g} seconds; allowed: {_SHORTEST_LEASE:g} to {_LONGEST_LEASE:,.0f}.")
    if devices_per_worker is not None and not 1 <= devices_per_worker <= 1024:
        raise UserError(f"{devices_per_worker} devices per worker; allowed: 1 to 1,024.")
    return Choice(kind, number, address, lease or LEASE, mixed, devices_per_worker or 1)
