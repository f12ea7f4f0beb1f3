"""Faults on a Ray cluster of two nodes: every pass ends with the right bytes, or one line says why not."""

import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import needs
from anchorscope.errors import Incomplete, MemoryRanOut, UserError
from anchorscope.execute import ray_executor
from anchorscope.execute.choose import choose
from anchorscope.execute.executor import LocalExecutor
from anchorscope.execute.ray_executor import (
    RayExecutor,
    RayWorker,
    WorkerJob,
    import_ray,
)
from anchorscope.execute.run_passes import run_states
from anchorscope.execute.worker import Worker
from anchorscope.models.loading import load
from anchorscope.progress import Silent
from pass_cases import bits
from repo import SOURCES, SUPPORT
from small_shards import StrikeAfter, small_pass
from whole_runs import SmallRun, tables_of

N = 24
STORE = 80 * 2**20
"""Bytes of each node's object store: nearly the least that Ray allows."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes with room for both workers each, and a token."""
    needs.ray()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(SOURCES), str(SUPPORT)]))
        import_ray(None)
        from ray.cluster_utils import Cluster

        node = {"num_cpus": 2, "object_store_memory": STORE}
        made = Cluster(
            initialize_head=True, head_node_args={**node, "include_dashboard": False}
        )
        try:
            made.second = made.add_node(**node)
            yield made
        finally:
            made.shutdown()


@pytest.fixture(scope="module")
def model(save_tiny: Callable[[str], Path]) -> str:
    return str(save_tiny("llama"))


class Crew:
    """Two workers, a pass whose states go to files, and what it has to give."""

    def __init__(self, address: str, model: str, folder: Path) -> None:
        lm = load(model, "float32", "cpu", False)
        self.work = small_pass(lm, N)
        self.right = bits(run_states(LocalExecutor(lambda: lm), self.work, Silent()))
        self.executor = RayExecutor(
            choose(f"ray:{address}", 2), WorkerJob(model, threads=1)
        )
        self.executor.folder = folder

    @property
    def pids(self) -> list[int]:
        import ray

        actors = self.executor.actors
        return [facts.pid for facts in self.executor._facts_of(ray, actors)]

    def run(self, strike: Callable[[], object] = lambda: None, after: int = 3) -> Any:
        """The merged parts; after some of them something happens."""
        assert len(self.work.batches) > N // 2
        part = run_states(self.executor, self.work, StrikeAfter(after, strike))
        return bits(part)


@pytest.fixture
def crew(
    cluster: Any, model: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Crew]:
    monkeypatch.setattr(ray_executor, "PATIENCE", 150.0)
    made = Crew(cluster.address, model, tmp_path / "states")
    yield made
    made.executor.close()


def test_an_object_store_that_is_full_changes_nothing(crew: Crew) -> None:
    crew.executor.describe()
    import ray

    held = [
        ray.put(np.ones(2**20)) for _ in range(2 * STORE // 2**23)
    ]  # twice what there is room for: Ray spills
    assert crew.run() == crew.right
    assert len(held) > 10


def test_a_folder_that_a_worker_does_not_find_is_one_line(crew: Crew) -> None:
    shards = crew.executor.divide(crew.work)
    crew.executor.forget_states()
    with pytest.raises(
        UserError,
        match=r"^A worker does not find .*; put the run folder where every machine",
    ) as error:
        crew.executor.map(shards, Silent())
    assert "\n" not in str(error.value)


def test_a_worker_that_is_killed_starts_again(crew: Crew) -> None:
    first = crew.pids[0]
    assert crew.run(lambda: os.kill(first, signal.SIGKILL)) == crew.right
    assert crew.run() == crew.right
    assert crew.pids[0] != first


def test_a_worker_that_hangs_ends_the_run_with_one_line(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = crew.pids[0]
    monkeypatch.setattr(ray_executor, "PATIENCE", 15.0)
    try:
        with pytest.raises(
            Incomplete, match=r"none has answered for 15 s; .*the same command"
        ) as error:
            crew.run(lambda: os.kill(first, signal.SIGSTOP))
        assert "\n" not in str(error.value)
    finally:
        os.kill(first, signal.SIGCONT)


def test_a_worker_that_dies_every_time_ends_the_run_with_one_line(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_executor, "RESTARTS", 0)
    pids = crew.pids
    with pytest.raises(
        Incomplete,
        match=r"A worker was lost and cannot be started again .*run the same command",
    ) as error:
        crew.run(lambda: [os.kill(pid, signal.SIGKILL) for pid in pids])
    assert "\n" not in str(error.value)


def test_a_node_that_is_lost_holds_nothing_up(crew: Crew, cluster: Any) -> None:
    crew.executor.describe()
    assert (
        crew.run(lambda: cluster.remove_node(cluster.second, allow_graceful=False))
        == crew.right
    )
    assert crew.run() == crew.right, "with half of the capacity"
    cluster.second = cluster.add_node(num_cpus=2)
    assert crew.run() == crew.right


def test_a_cluster_with_another_token_is_not_joined(cluster: Any) -> None:
    text = (
        "import sys; from anchorscope.execute.ray_executor import *; "
        "join(import_ray(sys.argv[1]), sys.argv[1], None)"
    )
    wrong = {**os.environ, "RAY_AUTH_TOKEN": "another" * 8, "PYTHONPATH": str(SOURCES)}
    command = [sys.executable, "-c", text, cluster.address]
    done = subprocess.run(
        command, env=wrong, capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode
    assert (
        f"UserError: The Ray cluster at '{cluster.address}' cannot be joined"
        in done.stderr
    )


def test_a_port_where_nothing_listens_is_one_line() -> None:
    needs.ray()
    with pytest.raises(UserError, match=r"There is no Ray cluster at '127\.0\.0\.1:1'"):
        ray_executor.join(import_ray("127.0.0.1:1"), "127.0.0.1:1", None)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MemoryRanOut("x"), MemoryRanOut),
        (UserError("x"), UserError),
        (ValueError("x"), ValueError),
        (OSError(errno.ENOSPC, "No space left on device"), Incomplete),
    ],
)
def test_what_fails_on_a_worker_is_raised_there(
    error: Exception, kind: type[Exception], model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(Worker, "run", fail)
    worker = RayWorker(WorkerJob(model))
    with pytest.raises(kind):
        worker.run(0, None, (), worker.facts())  # type: ignore[arg-type]


AGENTS = "ray::DashboardAgent", "ray::RuntimeEnvAgent"
"""They look for their parent once a minute."""
DRIVER = """
import sys
from pathlib import Path
from anchorscope.execute.choose import choose
from anchorscope.recipe import Recipe
from whole_runs import quick

if __name__ == "__main__":
    quick(Recipe.model_validate_json(sys.argv[1]), Path(sys.argv[2]), choice=choose(workers=2))
"""


def marked(mark: str, but: tuple[str, ...] = ()) -> list[str]:
    """Command lines of the processes that have a mark in their environment."""
    lines = []
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if (
                process.name.isdecimal()
                and mark.encode() in (process / "environ").read_bytes()
            ):
                lines.append(
                    (process / "cmdline").read_bytes().decode().replace("\0", " ")
                )
    return [line for line in lines if line and not line.startswith(but)]


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.1)
    return condition()


@pytest.mark.timeout(900)  # two starts of Ray, on a busy machine
def test_a_driver_that_is_killed_leaves_nothing_and_resumes(
    small_run: SmallRun, tmp_path: Path
) -> None:
    needs.ray()
    mark, again, out = uuid.uuid4().hex, uuid.uuid4().hex, tmp_path / "run"
    recipe = small_run.recipe.model_copy(update={"threads": 1}).model_dump_json()
    (tmp_path / "driver.py").write_text(DRIVER)
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("RAY_")
    }
    environment |= {
        "PYTHONPATH": os.pathsep.join([str(SOURCES), str(SUPPORT)]),
        "OMP_NUM_THREADS": "1",
        "MARK": mark,
    }
    command = [sys.executable, str(tmp_path / "driver.py"), recipe, str(out)]
    shared_memory = set(os.listdir("/dev/shm"))
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as driver:
        assert wait_until(lambda: any(out.glob("work/states.*/*")), 240), (
            "states are on their way"
        )
        assert len(marked(mark)) > 3, "the driver, Ray and its workers"
        driver.kill()
    assert wait_until(lambda: not marked(mark, AGENTS), 30), (
        "workers end with their driver"
    )
    subprocess.run(
        command,
        env={**environment, "MARK": again},
        check=True,
        capture_output=True,
        timeout=300,
    )
    assert tables_of(out) == small_run.tables
    assert not list(out.glob("work/states.*"))
    assert wait_until(lambda: not marked(mark) and not marked(again), 120), (
        "and so does Ray"
    )
    assert wait_until(lambda: set(os.listdir("/dev/shm")) <= shared_memory, 60)
