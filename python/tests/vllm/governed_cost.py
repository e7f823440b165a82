"""What the governed scheduler adds to a step of vLLM's own, in one run; prints a table.

    UNIT_MODEL=DIRECTORY [MERIDIAN_BIN=bin/meridian] python python/tests/vllm/governed_cost.py [REQUESTS]

As in vLLM's engine: a step that was computed lands (`update_from_output`), the next one is planned
(`schedule`), and when the workers have it the engine asks for a bitmask (`get_grammar_bitmask`), which is
where a synchronous scheduler speaks with its agent. A step is the first two, between which the workers have
nothing to do; what is done while they compute is told by itself (`meanwhile`), and is not free where the
model computes in the engine's process. Outputs are made up, all requests decode. The agent is a real one,
with its governor; steps of both schedulers alternate. A step of a model takes milliseconds in between, in
which the decision comes: `waited` is the worst case, where a step lands at once.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import pytest
from governed_unit import World

from meridian.door import Steps, socket_path

ROUNDS = 400
PAUSE = 0.002
"""What a small model would compute for."""


class Both:
    """vLLM's own scheduler and the governed one over it, at the same work."""

    def __init__(self, requests: int, asynchronous: bool, socket: str) -> None:
        with pytest.MonkeyPatch.context() as patch:
            self.governed = World(patch, asynchronous, blocks=32768, most=requests, length=2048)
            self.own = World(patch, asynchronous, blocks=32768, most=requests, length=2048, governed=False)
        scheduler = self.governed.scheduler
        about = scheduler._governing._steps.about
        scheduler._governing._steps = steps = Steps(socket, "cost", **about)
        end = time.monotonic() + 30
        while not steps.governed and time.monotonic() < end:
            steps.advance()
            time.sleep(0.01)
        assert steps.governed, "the agent does not govern"
        scheduler._governing._connection = steps.connections
        for world in (self.governed, self.own):
            for number in range(requests):
                world.add(f"r{number}", prompt=16, answer=1900)
            for _ in range(40):
                world.step()
            for _ in range(1 + asynchronous):  # so many are under way
                world.plan()
                world.ask()


def microseconds(world: World, pause: float) -> tuple[float, float, float, float]:
    """Return what a step took and what of it this thread computed, and both of what is done meanwhile."""
    time.sleep(pause)
    at = [(time.perf_counter(), time.thread_time())]
    world.land()
    world.plan()
    at.append((time.perf_counter(), time.thread_time()))
    world.ask()
    at.append((time.perf_counter(), time.thread_time()))
    (began, computed), (planned, then), (asked, last) = at
    times = planned - began, then - computed, asked - planned, last - then
    return times[0] * 1e6, times[1] * 1e6, times[2] * 1e6, times[3] * 1e6


def main() -> None:
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 64
    binary = os.environ.get("MERIDIAN_BIN", "bin/meridian")
    with tempfile.TemporaryDirectory(dir="/tmp") as state:
        log = Path(state) / "log"
        agent: Any = subprocess.Popen(
            [binary, "agent", "--state", state, "--name", "cost", "--no-directory"],
            stdout=log.open("w"),
            stderr=subprocess.STDOUT,
        )
        try:
            print(f"{requests} requests; µs for a step of the scheduler: median and 99th percentile")
            print(
                f"{'':10}{'':10}{'own':>16}{'governed':>16}{'added':>10}{'computed':>10}{'added':>10}"
                f"{'meanwhile':>12}{'computed':>10}"
            )
            for asynchronous in (False, True):
                both = Both(requests, asynchronous, socket_path(state, "cost"))
                for name, pause in (("computing", PAUSE), ("waited", 0.0)):
                    times: dict[str, list[tuple[float, ...]]] = {"own": [], "governed": []}
                    for _ in range(ROUNDS):
                        times["own"].append(microseconds(both.own, pause))
                        times["governed"].append(microseconds(both.governed, pause))
                    own, governed = ([each[0] for each in t] for t in times.values())
                    cells = [
                        f"{statistics.median(t):8.0f}{statistics.quantiles(t, n=100)[98]:8.0f}"
                        for t in (own, governed)
                    ]
                    added = statistics.median(governed) - statistics.median(own)
                    computed = [statistics.median(each[1] for each in t) for t in times.values()]
                    meanwhile = [statistics.median(each[at] for each in times["governed"]) for at in (2, 3)]
                    kind = "async" if asynchronous else "sync"
                    print(
                        f"{kind:10}{name:10}{cells[0]}{cells[1]}{added:10.0f}"
                        f"{computed[0]:10.0f}{computed[1] - computed[0]:10.0f}"
                        f"{meanwhile[0]:12.0f}{meanwhile[1]:10.0f}",
                        flush=True,
                    )
                counts = both.governed.scheduler.counts
                print(f"  steps {counts.steps}, without a decision {counts.late}, faults {counts.faults}")
                both.governed.scheduler.shutdown()
        finally:
            agent.terminate()
            agent.wait()


if __name__ == "__main__":
    main()
