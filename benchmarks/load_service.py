"""Load on a service of this machine, from this machine: latency of one, rates of many, overload, memory in a soak.

    python benchmarks/load_service.py BUNDLE [--json] [--processes 1] [--overload-seconds 20] [--soak-minutes 10]

Everything is bounded in count and in time. The rate without a service is measured in the same run, in this process and
before the service starts, on the same items with the same number of threads, so that ratios hold on whatever machine.
"""

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack, contextmanager
from itertools import cycle
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import httpx

from reporting import Parser, Report, machine, run_script

POOLS = 64
"""Pools of connections that requests at fixed times are spread over."""
LONGEST = 600.0
"""Seconds of any one measurement but the soak."""
TIMES_BORNE = 4
"""How many times the rate that the service bears is offered in the overload."""
MEASURED_FOR = 10.0
"""Seconds in which the rate that it bears is measured, with 32 clients."""
WELL = 1.3
"""A service is well again when one request takes at most this many times what it took before."""


def made_item(k: int) -> dict[str, str]:
    """A question of ordinary length, another one for every number."""
    names = (
        "Peru",
        "Japan",
        "Kenya",
        "Norway",
        "Chile",
        "Egypt",
        "Nepal",
        "Cuba",
        "Ghana",
        "Iceland",
        "Laos",
        "Malta",
    )
    asked = (
        "What is the capital of {}?",
        "Which river is the longest of {}?",
        "Who was the first president of {}?",
    )
    return {
        "question": f"{asked[k % 3].format(names[k % 12])} ({k})",
        "answer": ("Lima", "the Nile", "Jan Smuts")[k % 3],
    }


def made_items(n: int) -> list[dict[str, str]]:
    """The first of them."""
    return [made_item(k) for k in range(n)]


def in_process(bundle: str, options: argparse.Namespace) -> dict[str, float]:
    """Seconds of one item alone, and items a second in batches of 32, without a service."""
    from anchorscope import Detector
    from anchorscope.models.process_settings import threads

    with threads(options.threads):
        detector = Detector.load(bundle, options.model, device=options.device)
        pairs = [(one["question"], one["answer"]) for one in made_items(options.items)]
        detector.score_many(pairs[:32])
        alone = []
        for pair in pairs[: options.requests]:
            began = time.perf_counter()
            detector.score(pair[0], pair[1])
            alone.append(time.perf_counter() - began)
        began = time.perf_counter()
        done = 0
        for first in range(0, len(pairs), 32):
            done += len(detector.score_many(pairs[first : first + 32]))
        return {
            "pass_p50_s": statistics.median(alone),
            "items_per_s": done / (time.perf_counter() - began),
        }


def percentile(values: list[float], share: float) -> float | None:
    """The value below which this share of all lies; None where there are no values."""
    return (
        None
        if not values
        else sorted(values)[min(len(values) - 1, int(share * len(values)))]
    )


CLIENT_PROCESSES = max(1, min(8, (os.cpu_count() or 1) - 2))
"""Clients are spread over so many: httpx takes a millisecond a request, and a GPU less."""


@contextmanager
def started_processes(n: int) -> Iterator[ProcessPoolExecutor]:
    """A pool whose processes are all up, so that what it runs next begins at once."""
    with ProcessPoolExecutor(n, get_context("spawn")) as processes:
        list(processes.map(time.sleep, [0.5] * n))
        yield processes


def clients(url: str, n: int, total: int, until: float) -> dict[str, Any]:
    """Clients, each with one item at a time, until all are done or the time is over; a refused one comes again.

    The rate is that of the items until then, or until the last one was done.
    """
    several = min(n, CLIENT_PROCESSES)
    with started_processes(several) as processes:
        shares = [
            processes.submit(
                _share, url, len(range(k, n, several)), range(k, total, several), until
            )
            for k in range(several)
        ]
        found = [share.result() for share in shares]
    seconds = [one for taken, *_ in found for one in taken]
    statuses = sum((Counter(each) for _, each, *_ in found), Counter[int]())
    began = min(one[2] for one in found)
    ended = max(one[3] for one in found)
    return {
        "clients": n,
        "requests": statuses.total(),
        "statuses": dict(statuses),
        "items_per_s": len(seconds) / (ended - began) if seconds else 0.0,
        "p50_s": percentile(seconds, 0.5),
        "p95_s": percentile(seconds, 0.95),
        "from_processes": several,
    }


def _share(
    url: str, n: int, places: range, until: float
) -> tuple[list[float], dict[int, int], float, float]:
    return asyncio.run(_ask_in_turn(url, n, places, until))


async def _ask_in_turn(
    url: str, n: int, places: range, until: float
) -> tuple[list[float], dict[int, int], float, float]:
    """Seconds of each answer, how often each status came, and when the first was asked and the last answered."""
    taken = iter(places)
    seconds: list[float] = []
    statuses = Counter[int]()
    began = ended = time.monotonic()

    async def one() -> None:
        nonlocal ended
        async with httpx.AsyncClient(base_url=url, timeout=120, verify=False) as client:
            for place in taken:
                status = 429
                while status == 429 and time.monotonic() < until:
                    asked = time.monotonic()
                    answer = await client.post(
                        "/v1/score", json={"items": [made_item(place)]}
                    )
                    status = answer.status_code
                    statuses[status] += 1
                    if status == 429:
                        wait = float(answer.headers["Retry-After"])
                        await asyncio.sleep(
                            max(0.0, min(wait, until - time.monotonic()))
                        )
                    if status == 200:
                        ended = time.monotonic()
                        seconds.append(ended - asked)

    await asyncio.gather(*(one() for _ in range(n)))
    return seconds, dict(statuses), began, ended


async def overload(url: str, seconds: float, alone: float) -> dict[str, Any]:
    """Requests of one item at fixed times, whether others are answered or not, at four times the rate that the service
    bears; what came of them, and how long it takes from the last one on until a request is answered as fast as before.

    What it bears is what 32 clients get, or `alone`, the rate without a service, where that is more. The requests come
    from processes of their own, so that this one can tell how the service is; how late they were sent tells whether
    those were fast enough.
    """
    async with httpx.AsyncClient(base_url=url, timeout=120, verify=False) as client:
        before = statistics.median(
            [(await ask(client, item))[1] for item in made_items(5)]
        )
        borne = max(
            alone,
            clients(url, 32, 1_000_000, time.monotonic() + MEASURED_FOR)["items_per_s"],
        )
        rate = TIMES_BORNE * borne
        n = max(1, int(rate * seconds))
        several = CLIENT_PROCESSES
        with started_processes(several) as processes:
            loop = asyncio.get_running_loop()
            begin = time.time() + 0.5
            shares = [
                loop.run_in_executor(
                    processes, offered, url, range(first, n, several), rate, begin
                )
                for first in range(several)
            ]
            await asyncio.sleep(begin - time.time() + (n - 1) / rate)
            ended = time.perf_counter()
            again = None
            while again is None and time.perf_counter() - ended < LONGEST:
                found, took = await ask(client, made_item(0))
                if found == "200" and took <= WELL * before:
                    again = time.perf_counter() - ended
                await asyncio.sleep(0.0 if found == "200" else 0.1)
            done = await asyncio.gather(*shares)
    statuses = dict(sum((Counter(statuses) for statuses, _ in done), Counter[str]()))
    late = [one for _, lateness in done for one in lateness]
    return {
        "borne_per_s": borne,
        "offered_per_s": rate,
        "seconds": seconds,
        "requests": n,
        "statuses": statuses,
        "one_before_s": before,
        "well_again_s": again,
        "from_processes": several,
        "sent_late_p50_s": percentile(late, 0.5),
        "sent_late_p95_s": percentile(late, 0.95),
        "only_expected_statuses": set(statuses) <= {"200", "429", "504"},
    }


async def ask(client: httpx.AsyncClient, item: dict[str, str]) -> tuple[str, float]:
    """The status of one request, or the name of its error, and its seconds."""
    began = time.perf_counter()
    try:
        found = str(
            (await client.post("/v1/score", json={"items": [item]})).status_code
        )
    except httpx.TransportError as error:
        found = type(error).__name__
    return found, time.perf_counter() - began


def offered(
    url: str, places: range, rate: float, begin: float
) -> tuple[dict[str, int], list[float]]:
    """Sends one request at each place in the schedule; what came of them, and by how much each was sent late."""
    return asyncio.run(_offered(url, places, rate, begin))


async def _offered(
    url: str, places: range, rate: float, begin: float
) -> tuple[dict[str, int], list[float]]:
    statuses = Counter[str]()
    late: list[float] = []
    async with AsyncExitStack() as stack:
        # Many pools: one looks through all of its requests at every answer, and would be slower than the service.
        pools = [
            httpx.AsyncClient(base_url=url, timeout=120, verify=False)
            for _ in range(POOLS)
        ]
        for one in pools:
            await stack.enter_async_context(one)
        turns = cycle(pools)

        async def offer(place: int) -> None:
            due = begin + place / rate
            await asyncio.sleep(due - time.time())
            late.append(time.time() - due)
            statuses[(await ask(next(turns), made_item(place)))[0]] += 1

        await asyncio.gather(*map(offer, places))
    return dict(statuses), late


def resident(pid: int) -> int:
    """Bytes that a process and those that it has started have in memory."""
    started = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    pages = sum(
        int(Path(f"/proc/{each}/statm").read_text().split()[1])
        for each in (pid, *started)
    )
    return pages * os.sysconf("SC_PAGE_SIZE")


async def soak(url: str, pid: int, minutes: float) -> dict[str, Any]:
    """Eight clients for so long; memory at ten times of it, and how much the last three grew over the first three."""
    until = time.monotonic() + 60 * minutes
    sizes: list[int] = []

    async def watch() -> None:
        while time.monotonic() < until:
            sizes.append(resident(pid))
            await asyncio.sleep(min(5.0, 6 * minutes))

    found, _ = await asyncio.gather(
        asyncio.to_thread(clients, url, 8, 1_000_000, until), watch()
    )
    tenths = [sizes[(part * len(sizes)) // 10] for part in range(1, 10)] + [sizes[-1]]
    return {
        **found,
        "minutes": minutes,
        "bytes_by_tenth": tenths,
        "growth": min(tenths[-3:]) / min(tenths[:3]) - 1,
    }  # of the least: single batches come and go


def start(options: argparse.Namespace) -> tuple[subprocess.Popen[str], str]:
    """The service in a process of its own, ready."""
    command = [
        sys.executable,
        "-m",
        "anchorscope",
        "serve",
        options.bundle,
        "--port",
        "0",
        "--json",
        "--threads",
        str(options.threads),
        "--processes",
        str(options.processes),
        "--device",
        options.device,
        "--log-file",
        os.devnull,
    ]
    command += ["--model", options.model] if options.model else []
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    line = running.stdout.readline()
    if not line:
        raise SystemExit(running.wait())
    return running, json.loads(line)["url"]


def main() -> int:
    """The program."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the service ends with it
    parser = Parser(__doc__)
    parser.add_argument("bundle")
    parser.add_argument("--model", default=None)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--requests", type=int, default=50, help="of one client")
    parser.add_argument("--items", type=int, default=256, help="of 8 and 32 clients")
    parser.add_argument("--processes", type=int, default=1, help="of the service")
    parser.add_argument(
        "--overload-seconds", type=float, default=20.0, help="0 leaves the overload out"
    )
    parser.add_argument("--soak-minutes", type=float, default=0.0)
    return run_script(parser, measure)


def measure(options: argparse.Namespace) -> Report:
    """One client, many, an overload and a soak, against the same items without a service."""
    alone = in_process(options.bundle, options)
    running, url = start(options)
    try:
        found: dict[str, Any] = {"in_process": alone}
        for n, total in (
            (1, options.requests),
            (8, options.items),
            (32, options.items),
        ):
            found[f"clients_{n}"] = clients(url, n, total, time.monotonic() + LONGEST)
        if options.overload_seconds:
            found["overload"] = asyncio.run(
                overload(url, options.overload_seconds, alone["items_per_s"])
            )
        if options.soak_minutes:
            found["soak"] = asyncio.run(soak(url, running.pid, options.soak_minutes))
    finally:
        running.terminate()
        running.wait(60)
    pass_s = alone["pass_p50_s"]
    rate = alone["items_per_s"]
    one = found["clients_1"]["p50_s"]
    ratios = {"one_p50_over_pass": one / pass_s}
    rows = [{"load": "no service", "items_per_s": rate, "p50_s": pass_s}]
    for name, row in found.items():
        if "items_per_s" in row and name != "in_process":
            ratios[f"{name}_over_in_process"] = row["items_per_s"] / rate
            rows.append(
                {"load": name, "of_no_service": row["items_per_s"] / rate, **row}
            )
    notes = [f"one client is within its bar: {one <= 1.3 * pass_s + 0.010}"]
    further = [name for name in ("overload", "soak") if name in found]
    notes += [f"{name}: {json.dumps(found[name])}" for name in further]
    columns = {
        "load": "{}",
        "items_per_s": "{:.3g}",
        "of_no_service": "{:.2f}",
        "p50_s": "{:.3f}",
        "p95_s": "{:.3f}",
    }
    facts = {"service_processes": options.processes, "machine": machine()}
    return Report(facts, columns, rows, notes, details=found | {"ratios": ratios})


if __name__ == "__main__":
    main()
