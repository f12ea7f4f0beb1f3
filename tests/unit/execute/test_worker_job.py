"""What a worker is told, and how the devices of a machine are dealt out."""

import subprocess
import sys

import pytest

from anchorscope.errors import UserError
from anchorscope.execute.process_pool import ProcessPool, visible_gpus
from anchorscope.execute.worker_job import WorkerJob, gpu_shares, share_job


def test_a_job_travels_as_plain_json():
    job = WorkerJob("some", "float16", "cuda", True, 3)
    assert WorkerJob.of(job.plain()) == job


def test_a_job_of_another_version_is_refused():
    with pytest.raises(UserError, match=r"'colour'.*same version"):
        WorkerJob.of({"model": "some", "colour": "red"})


@pytest.mark.parametrize(
    ("device", "each", "given"),
    [("cpu", 1, "cpu"), ("cuda", 1, "cuda"), ("cuda", 2, "balanced"), ("balanced", 4, "balanced")],
)
def test_a_worker_with_several_gpus_spreads_its_layers(device, each, given):
    assert share_job(WorkerJob("some", device=device), each).device == given


@pytest.mark.parametrize(
    ("device", "each", "words"),
    [
        ("cpu", 2, "a CPU is one device"),
        ("cuda:1", 1, "'cuda:1' names one device"),
        ("balanced", 1, "--devices-per-worker"),
        ("cuda", 0, "allowed: 1 or more"),
    ],
)
def test_shares_that_cannot_be(device, each, words):
    with pytest.raises(UserError, match=words):
        share_job(WorkerJob("some", device=device), each)


def test_more_workers_than_gpus(monkeypatch):
    with pytest.raises(UserError, match=r"3 workers with 2 GPUs each.*this machine has 5; at most 2"):
        gpu_shares(3, 2, ["0", "1", "2", "3", "4"])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, 5")
    assert visible_gpus() == ["3", "5"]
    with pytest.raises(UserError, match="this machine has 2"):
        ProcessPool(3).start({"model": "some", "device": "cuda"})


def test_a_worker_reads_its_job_before_torch_is_there():
    """The number of threads is read when torch is loaded, so nothing on the way to the job may load it."""
    text = "import sys; import anchorscope.execute.worker_process, anchorscope.execute.ray_worker; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "numpy", "ray"} & set(loaded)
