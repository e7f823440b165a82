"""What a governed server must do, on a CPU and on a GPU."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tiny_model
from api_client import completion, post
from budget_checks import END, REASONING, START
from fakeagent import FakeAgent
from servers import Server
from waiting import until

from meridian.door import _messages
from meridian.door._frames import frame
from meridian.door._messages import Message

WELCOME = _messages.Welcome(version=1, agent="n", incarnation=bytes(16), features=["steps"])
WELCOME.governor.policy = "test"
WELCOME.governor.wait_us = 200_000  # long: what is decided is heard before the next step is planned
WELCOME.governor.max_think_tokens = 1000
WELCOME.governor.end_tokens.append(END)
WELCOME.governor.entropy = True

LONG, SHORT = 200, 20
"""Tokens of the answers."""


class ShortFirst:
    """A governor that lets no long prompt run while there is a short one."""

    def __init__(self, ahead: int) -> None:
        """Know that so many steps are under way when one is told."""
        self.ahead = ahead
        self.since: dict[int, int] = {}
        """The step after which each was paused."""
        self.lock = threading.Lock()
        self.length: dict[int, int] = {}
        self.paused: set[int] = set()
        self.broken = 0
        """Steps in which one was computed that was paused."""
        self.ended: list[int] = []
        """The lengths of prompts, as they ended."""
        self.steps = 0
        self.tokens: dict[int, int] = {}
        """How many tokens of each were told."""
        self.measured: dict[tuple[int, int], float] = {}
        """Entropies by sequence and place, and whether they came before their token."""
        self.early = 0
        self.listens = True
        """Else what comes had to wait for this one, and says nothing of when it was sent."""
        self.forced: list[tuple[int, int]] = []
        """Whose thoughts were ended, and why."""

    def decide(self, step: Message) -> bytes:
        with self.lock:
            if step.places or step.forced:
                if not self.listens:
                    return b""
                self.forced += zip(step.forced, step.forced_for, strict=True)
                for number, place, nats in zip(step.sequences, step.places, step.entropies, strict=True):
                    self.early += place >= self.tokens.get(number, 0)
                    self.measured[number, place] = nats
                return b""
            for number, count in zip(step.sequences, step.counts, strict=True):
                self.tokens[number] = self.tokens.get(number, 0) + count
            self.steps += 1
            for begun in step.begun:
                self.length[begun.sequence] = begun.prompt_tokens
            self.broken += sum(
                1
                for number in step.sequences
                if step.number > self.since.get(number, step.number) + self.ahead
            )
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
            self.since = {number: self.since.get(number, step.number) for number in wanted}
            self.paused = wanted
            return frame(decision)


@contextmanager
def running(kind: type[Server], directory: Path, size: tiny_model.Size) -> Iterator[tuple[Server, Path]]:
    """A server that is governed where a test opens the door, and that measures."""
    tiny_model.write(directory / "tiny", size=size)
    door = Path("/tmp") / f"governed-{os.getpid()}.sock"  # a socket's path is short
    where = {"meridian": {"socket": str(door), "engine": "governed"}}
    flags = (
        *("--scheduler-cls", "meridian.vllm.Scheduler", "--additional-config", json.dumps(where)),
        *("--logits-processors", "meridian.vllm:BudgetLogits", "--reasoning-config", json.dumps(REASONING)),
    )
    server = kind("governed", directory / "tiny", directory / "log", *flags)
    try:
        server.wait_ready()
        yield server, door
    finally:
        server.stop()
        door.unlink(missing_ok=True)


def ask(server: Server, number: int) -> list[int]:
    """Ask for a long answer that thinks to a long prompt, or a short one to a short prompt."""
    long = number % 2 == 0
    text = [tiny_model.TEXT[(31 * number + 7 * i) % 256] for i in range(60 + number if long else 20 + number)]
    more: dict[str, Any] = {"vllm_xargs": {"meridian_entropy": 1}} if long else {}
    asked = completion([*text, START] if long else text, LONG if long else SHORT, **more)
    return post(server.port, asked).tokens


def all_of(server: Server) -> list[list[int]]:
    """Eight requests: those that take long come first."""
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(ask, server, number) for number in (0, 2, 4, 6)]
        until_begun(server, 4)
        asked += [pool.submit(ask, server, number) for number in (1, 3, 5, 7)]
        return [one.result() for one in asked]


def until_begun(server: Server, requests: int) -> None:
    def known() -> float:
        return server.metric("vllm:num_requests_running") + server.metric("vllm:num_requests_waiting")

    until(f"{requests} requests have begun", lambda: known() >= requests, said=known)


def check_governed(server: Server, door: Path, *, same: bool) -> ShortFirst:
    """Order and pauses follow the governor, and requests run on when it has gone.

    Where the same prompt always gives the `same` tokens, they are compared.
    """
    alone = all_of(server)
    governor = ShortFirst(ahead=0 if same else 2)
    agent = FakeAgent(door)
    agent.at_once = True
    agent.sayings = [frame(WELCOME)] * 4
    agent.answer = governor.decide
    try:
        end = time.monotonic() + 60
        while not governor.steps and time.monotonic() < end:
            ask(server, 1)  # the agent is looked for while there is something to plan
        assert governor.steps, f"it was not found:\n{server.log_tail()}"
        governor.ended.clear()
        answers = all_of(server)
        assert not same or answers == alone, "the order changed what was said"
        assert [len(a) for a in answers] == [len(a) for a in alone]
        assert governor.broken == 0
        assert all(length < 50 for length in governor.ended[:4]), governor.ended
        assert governor.measured, "no entropy came"
        check_forced(server, governor)
        # Nor is it missed where it is there and does not decide: whom it has paused runs.
        governor.listens = False
        with agent.hanging():
            answers = all_of(server)
        assert [len(a) for a in answers] == [len(a) for a in alone] and (not same or answers == alone)
        assert "the governor does not decide" in server.log_text()
        # Its end stops no request.
        with ThreadPoolExecutor(1) as pool:
            rest = pool.submit(all_of, server)
            until_begun(server, 4)
            agent.close()
            answers = rest.result()
            assert [len(a) for a in answers] == [len(a) for a in alone] and (not same or answers == alone)
    finally:
        door.unlink(missing_ok=True)
    answers = all_of(server)
    assert not same or answers == alone
    return governor


def check_forced(server: Server, governor: ShortFirst) -> None:
    """A thought that the worker ends is told once, with its reason."""
    assert not governor.forced, "no thought was as long as its cap"
    post(server.port, completion([*range(10, 40), START], 30, vllm_xargs={"meridian_max_think_tokens": 9}))
    until("an end is told", lambda: governor.forced, 10)
    hard_cap = _messages.Step.DESCRIPTOR.fields_by_name["forced_for"].enum_type
    assert [why for _, why in governor.forced] == [hard_cap.values_by_name["FORCE_REASON_HARD_CAP"].number]
