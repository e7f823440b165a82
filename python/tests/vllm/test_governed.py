"""A real vLLM whose order and pauses an agent's governor chooses, and which goes on without it."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tiny_model
from asking import completion, post
from conftest import ROOT
from fakeagent import FakeAgent
from installed import HOME, require_vllm, vllm_environment
from servers import Server

from meridian.door import _messages
from meridian.door._frames import frame
from meridian.door._messages import Message

pytestmark = pytest.mark.real

WELCOME = _messages.Welcome(version=1, agent="n", incarnation=bytes(16), features=["steps"])
WELCOME.governor.policy = "test"
WELCOME.governor.wait_us = 200_000  # long: what is decided is heard before the next step is planned
WELCOME.governor.max_think_tokens = 1000

LONG, SHORT = 200, 20
"""Tokens of the answers."""


class ShortFirst:
    """A governor that lets nobody with a long prompt run while there is one with a short one."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.length: dict[int, int] = {}
        self.paused: set[int] = set()
        self.broken = 0
        """Steps in which one was computed that was paused."""
        self.ended: list[int] = []
        """The lengths of prompts, as they ended."""
        self.steps = 0

    def decide(self, step: Message) -> bytes:
        with self.lock:
            self.steps += 1
            for begun in step.begun:
                self.length[begun.sequence] = begun.prompt_tokens
            self.broken += sum(1 for number in step.sequences if number in self.paused)
            for number in step.finished:
                self.ended.append(self.length.pop(number))
                self.paused.discard(number)
            decision = _messages.Decision(step=step.number)
            decision.order.extend(sorted(self.length, key=lambda n: self.length[n]))
            wanted = {n for n, length in self.length.items() if length > 50}
            if len(wanted) == len(self.length):
                wanted = set()
            decision.pause.extend(wanted - self.paused)
            decision.resume.extend(self.paused - wanted)
            self.paused = wanted
            return frame(decision)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    require_vllm()
    directory = tmp_path_factory.mktemp("governed")
    tiny_model.write(directory / "tiny", size=tiny_model.FOR_CPU)
    door = Path("/tmp") / f"governed-{os.getpid()}.sock"  # a socket's path is short
    where = {"meridian": {"socket": str(door), "engine": "governed"}}
    flags = ("--scheduler-cls", "meridian.vllm.Scheduler", "--additional-config", json.dumps(where))
    running = Server("governed", directory / "tiny", directory / "log", *flags)
    try:
        running.wait_ready()
        yield running, door
    finally:
        running.stop()
        door.unlink(missing_ok=True)


def ask(server: Server, number: int) -> list[int]:
    long = number % 2 == 0
    text = [tiny_model.TEXT[(31 * number + 7 * i) % 256] for i in range(60 + number if long else 20 + number)]
    return post(server.port, completion(text, LONG if long else SHORT)).tokens


def all_of(server: Server) -> list[list[int]]:
    """Eight requests: those that take long come first."""
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(ask, server, number) for number in (0, 2, 4, 6)]
        time.sleep(0.2)
        asked += [pool.submit(ask, server, number) for number in (1, 3, 5, 7)]
        return [one.result() for one in asked]


def test_order_and_pauses_follow_the_governor_and_nobody_misses_it(server: tuple[Server, Path]) -> None:
    running, door = server
    alone = all_of(running)
    governor = ShortFirst()
    agent = FakeAgent(door)
    agent.sayings = [frame(WELCOME)]
    agent.answer = governor.decide
    try:
        ask(running, 1)  # it is looked for while there is something to plan
        end = time.monotonic() + 60
        while not governor.steps and time.monotonic() < end:
            ask(running, 1)
        assert governor.steps, f"it was not found:\n{running.log_tail()}"
        governor.ended.clear()
        assert all_of(running) == alone, "the order changed what was said"
        assert governor.broken == 0
        assert all(length < 50 for length in governor.ended[:4]), governor.ended
        # Its end is nobody else's.
        with ThreadPoolExecutor(1) as pool:
            rest = pool.submit(all_of, running)
            time.sleep(0.3)
            agent.close()
            assert rest.result() == alone
    finally:
        door.unlink(missing_ok=True)
    assert all_of(running) == alone


def test_with_made_up_outputs(server: tuple[Server, Path], tmp_path: Path) -> None:
    """governed_unit.py needs vLLM, whose environment has no door of the agent's."""
    tests = Path(__file__).with_name("governed_unit.py")
    tiny_model.write(tmp_path / "tiny", size=tiny_model.FOR_CPU)
    plain = f"-m pytest -q -c {os.devnull} --rootdir {tests.parent} -p no:cacheprovider -p no:asyncio"
    done = subprocess.run(
        [str(HOME / "bin" / "python"), *plain.split(), str(tests)],
        env={**vllm_environment(), "UNIT_MODEL": str(tmp_path / "tiny")},
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-4000:]
