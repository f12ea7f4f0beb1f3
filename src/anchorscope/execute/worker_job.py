"""What a worker is told at its start: which model, how it is loaded, and which share of the machine is its own.

Nothing large is imported here: a worker reads this before it imports torch, because the number of threads is read when
torch is loaded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from anchorscope.errors import UserError

MEMORY = "memory"
"""Kind of failure: memory ran out."""
USER = "user"
"""Kind of failure: a mistake of the user; the text is its one line."""
ERROR = "error"
"""Kind of failure: anything else; the text is the traceback."""
_THREAD_SETTINGS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_DEVICES = ("cpu", "cuda", "balanced")


@dataclass(frozen=True)
class WorkerJob:
    """The model of a worker, as plain JSON on its way."""

    model: str
    """As the user named it; it has to be found under this name wherever a worker is."""
    dtype: str = "float32"
    device: str = "cpu"
    trust_remote_code: bool = False
    threads: int = 0
    """Threads of products on a CPU, which are part of the numbers; 0 leaves them as they are."""

    def plain(self) -> dict[str, Any]:
        """As plain JSON."""
        return asdict(self)

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> "WorkerJob":
        """From plain JSON; what it does not know is refused."""
        names = {field.name for field in fields(cls)}
        if unknown := sorted(set(told) - names):
            raise UserError(
                f"A worker's job has the entry {unknown[0]!r}; allowed: {', '.join(sorted(names))}. Do the workers "
                f"have the same version of anchorscope?"
            )
        return cls(**told)


def thread_settings(threads: int) -> dict[str, str]:
    """Environment variables that set the number of threads; none where it is 0."""
    return {name: str(threads) for name in _THREAD_SETTINGS} if threads else {}


def share_job(job: WorkerJob, devices_per_worker: int) -> WorkerJob:
    """The job of a worker that owns so many devices: on several GPUs its layers are spread over them.

    This was not run on a machine with several GPUs; a test runs a model that accelerate placed part by part on a CPU.
    """
    if devices_per_worker < 1:
        raise UserError(f"Devices per worker: {devices_per_worker}; allowed: 1 or more.")
    if job.device not in _DEVICES:
        raise UserError(
            f"Device {job.device!r} names one device, and workers get theirs in turn; choose {', '.join(_DEVICES)}."
        )
    if job.device == "cpu":
        if devices_per_worker > 1:
            raise UserError(
                f"{devices_per_worker} devices per worker were asked for, and a CPU is one device; "
                f"leave --devices-per-worker out, or choose --device cuda."
            )
        return job
    if job.device == "balanced" and devices_per_worker == 1:
        raise UserError(
            "Device 'balanced' spreads a model over several GPUs, and a worker has one; "
            "choose --device cuda, or say how many GPUs a worker has with --devices-per-worker."
        )
    return replace(job, device="cuda" if devices_per_worker == 1 else "balanced")


def gpu_shares(n_workers: int, devices_per_worker: int, visible: Sequence[str]) -> list[str]:
    """CUDA_VISIBLE_DEVICES of every worker: the GPUs of this machine dealt out in order, none to two workers."""
    if n_workers * devices_per_worker > len(visible):
        each = f"{devices_per_worker} GPU{'' if devices_per_worker == 1 else 's'}"
        raise UserError(
            f"{n_workers} workers with {each} each were asked for, and this machine has {len(visible)}; "
            f"at most {len(visible) // devices_per_worker} such workers fit."
        )
    starts = range(0, n_workers * devices_per_worker, devices_per_worker)
    return [",".join(visible[start : start + devices_per_worker]) for start in starts]
