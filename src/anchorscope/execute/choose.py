"""Which executor was asked for: `local` or `ray[:ADDRESS]`, with how many workers. Imports no torch."""

import re
from dataclasses import dataclass

from anchorscope.errors import UserError

EXECUTORS = ("local", "ray")
_MOST_WORKERS = 100_000
_ALLOWED = "local, ray (workers on this machine: --workers N), ray:HOST:PORT, ray:auto"


@dataclass(frozen=True)
class Choice:
    kind: str = "local"
    """One of `EXECUTORS`."""
    workers: int | None = None
    """How many were asked for; None for as many as there is room for."""
    address: str | None = None
    """Of a Ray cluster that is there; None to start one."""

    @property
    def is_local(self) -> bool:
        """Whether this process runs everything itself."""
        return self.kind == "local"


def choose(executor: str | None = None, workers: int | None = None) -> Choice:
    """From the options of the command; one line for what cannot be."""
    executor = executor or ("local" if workers is None else "ray")
    kind, _, address = executor.partition(":")
    if kind not in EXECUTORS or (kind == "local" and address):
        raise UserError(
            f"Executor {executor[:80]!r} is not known; allowed: {_ALLOWED}."
        )
    if (
        address
        and address != "auto"
        and not re.fullmatch(r"[A-Za-z0-9.\-\[\]:]{1,250}:[0-9]{1,5}", address)
    ):
        raise UserError(
            f"Executor {executor[:80]!r}: a cluster's address is wanted, like ray:10.0.0.1:6379."
        )
    if workers is not None and not 1 <= workers <= _MOST_WORKERS:
        raise UserError(
            f"{workers} workers were asked for; allowed: 1 to {_MOST_WORKERS:,}."
        )
    if kind == "local" and workers is not None:
        raise UserError(
            f"--workers {workers} says how many workers run, and the executor is local; leave one out."
        )
    return Choice(kind, workers, address or None)
