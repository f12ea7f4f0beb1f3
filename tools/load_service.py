"""Load on a service of this machine, from this machine: latency of one client, rates of many, memory in a soak.

    python tools/load_service.py BUNDLE [--json] [--soak-minutes 10]

Everything is bounded in count and in time. The rate without a service is measured in the same run, in this process and
before the service starts, on the same items with the same number of threads, so that ratios hold on whatever machine.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx

LONGEST = 600.0
"""Seconds of any one measurement but the soak."""


def made_items(n: int) -> list[dict[str, str]]:
    """Questions of ordinary lengths, all different."""
    names = ("Peru", "Japan", "Kenya", "Norway", "Chile", "Egypt", "Nepal", "Cuba", "Ghana", "Iceland", "Laos", "Malta")
    asked = ("What is the capital of {}?", "Which river is the longest of {}?", "Who was the first president of {}?")
    return [
        {"question": f"{asked[k % 3].format(names[k % 12])} ({k})", "answer": ("Lima", "the Nile", "Jan Smuts")[k % 3]}
        for k in range(n)
    ]


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
            detector.score(*pair)
            alone.append(time.perf_counter() - began)
        began, done = time.perf_counter(), 0
        for first in range(0, len(pairs), 32):
            done += len(detector.score_many(pairs[first : first + 32]))
        return {"pass_p50_s": statistics.median(alone), "items_per_s": done / (time.perf_counter() - began)}


def percentile(values: list[float], share: float) -> float:
    """The value below which this share of all lies."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


async def clients(url: str, n: int, total: int, until: float) -> dict[str, Any]:
    """So many clients, each with one item at a time, until all are done or the time is over."""
    items, taken, seconds = made_items(total), iter(range(total)), []
    statuses: dict[int, int] = {}

    async def one() -> None:
        async with httpx.AsyncClient(base_url=url, timeout=120, verify=False) as client:
            for place in taken:
                if time.monotonic() > until:
                    return
                began = time.perf_counter()
                answer = await client.post("/v1/score", json={"items": [items[place]]})
                statuses[answer.status_code] = statuses.get(answer.status_code, 0) + 1
                if answer.status_code == 200:
                    seconds.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(n)))
    rate = len(seconds) / (time.perf_counter() - began)
    return {"clients": n, "requests": sum(statuses.values()), "statuses": statuses, "items_per_s": rate,
            "p50_s": percentile(seconds, 0.5), "p95_s": percentile(seconds, 0.95)}  # fmt: skip


def resident(pid: int) -> int:
    """Bytes that a process has in memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def soak(url: str, pid: int, minutes: float) -> dict[str, Any]:
    """Eight clients for so long; memory after a tenth of the time, and at the end."""
    until = time.monotonic() + 60 * minutes
    sizes: list[int] = []

    async def watch() -> None:
        while time.monotonic() < until:
            sizes.append(resident(pid))
            await asyncio.sleep(min(5.0, 6 * minutes))

    found, _ = await asyncio.gather(clients(url, 8, 10_000_000 if minutes else 0, until), watch())
    first = sizes[len(sizes) // 10]
    return {**found, "minutes": minutes, "bytes_first": first, "bytes_last": sizes[-1],
            "growth": sizes[-1] / first - 1}  # fmt: skip


def start(options: argparse.Namespace) -> tuple[subprocess.Popen[str], str]:
    """The service in a process of its own, ready."""
    command = [sys.executable, "-m", "anchorscope", "serve", options.bundle, "--port", "0", "--json", "--threads",
               str(options.threads), "--device", options.device, "--log-file", os.devnull]  # fmt: skip
    command += ["--model", options.model] if options.model else []
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    line = running.stdout.readline()
    if not line:
        raise SystemExit(running.wait())
    return running, json.loads(line)["url"]


def main() -> None:
    """Measures, and tells."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("bundle")
    parser.add_argument("--model", default=None)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--requests", type=int, default=50, help="requests of one client")
    parser.add_argument("--items", type=int, default=256, help="requests of 8 and of 32 clients, one item each")
    parser.add_argument("--soak-minutes", type=float, default=0.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    alone = in_process(options.bundle, options)
    running, url = start(options)
    try:
        found: dict[str, Any] = {"in_process": alone}
        for n, total in ((1, options.requests), (8, options.items), (32, options.items)):
            found[f"clients_{n}"] = asyncio.run(clients(url, n, total, time.monotonic() + LONGEST))
        if options.soak_minutes:
            found["soak"] = asyncio.run(soak(url, running.pid, options.soak_minutes))
    finally:
        running.terminate()
        running.wait(60)
    one, pass_s = found["clients_1"], alone["pass_p50_s"]
    found["ratios"] = {
        "one_client_p50_over_pass": one["p50_s"] / pass_s,
        "one_client_is_within_bar": one["p50_s"] <= 1.3 * pass_s + 0.010,
        "clients_8_over_in_process": found["clients_8"]["items_per_s"] / alone["items_per_s"],
        "clients_32_over_in_process": found["clients_32"]["items_per_s"] / alone["items_per_s"],
    }
    if options.json:
        sys.stdout.write(json.dumps(found) + "\n")
        return
    for name, value in found.items():
        sys.stdout.write(f"{name}: {json.dumps(value)}\n")


if __name__ == "__main__":
    main()
