"""Everything is killed, one after the other, under load: no hang, no wrong token, no block held."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from api_client import Stream, at_once, post
from oracle import Case, Oracle, oracle
from pairs import DEADLINE, Pair, Side, running_pair, told
from processes import Process
from servers import Server
from waiting import until

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("told")]
__all__ = ["oracle", "told"]

WAVE = 60
"""Requests while one part is killed; five parts make 300."""
LONGEST_WAIT = 45.0
"""Seconds after which a request counts as hung, and the wave fails."""


@pytest.fixture(scope="module")
def pair(oracle: Oracle, meridian_binary: Path) -> Iterator[Pair]:
    with running_pair(meridian_binary, oracle.model, Side(), Side()) as running:
        yield running


@dataclass
class Wave:
    """What became of the requests of one wave."""

    whole: int = 0
    left: int = 0
    """By their clients."""
    refused: int = 0
    slowest: float = 0.0


class Load:
    """Clients with random prompts, of whom every third leaves at a random time."""

    def __init__(self, pair: Pair, oracle: Oracle, seed: int) -> None:
        self._pair, self._oracle = pair, oracle
        self._chance = random.Random(seed)
        self._wave, self._counting = Wave(), threading.Lock()
        self.begun = threading.Semaphore(0)

    def run(self) -> Wave:
        plans = []
        for number in range(WAVE):
            leave_after = self._chance.uniform(0, 0.5) if number % 3 == 0 else None
            plans.append((self._chance.choice(self._oracle.cases), leave_after))
        with ThreadPoolExecutor(8) as clients:
            for done in [clients.submit(self._one, case, leave) for case, leave in plans]:
                done.result()
        return self._wave

    def _one(self, case: Case, leave_after: float | None) -> None:
        began = time.monotonic()
        self.begun.release()
        stream = Stream()
        try:
            stream.read(self._pair.port, case.request(), leave_after)
        except OSError as error:
            raise AssertionError(f"the gateway did not answer: {error}") from error
        took = time.monotonic() - began
        assert took < LONGEST_WAIT, f"a request took {took:.0f} s"
        case.check(stream.tokens, begun=True)
        with self._counting:
            self._wave.slowest = max(self._wave.slowest, took)
            if stream.complete:
                assert len(stream.tokens) == len(case.answer)
                self._wave.whole += 1
            elif stream.left and not stream.error:
                self._wave.left += 1
            else:
                self._wave.refused += 1


def crash(part: Process | Server) -> Callable[[], None]:
    """Kill, and start anew after a moment."""

    def strike() -> None:
        part.kill()
        time.sleep(1)
        revive(part)

    return strike


def revive(part: Process | Server, seconds: float = 40.0) -> None:
    """Start what was killed. The name of a killed agent is free when its lease has ended."""
    if isinstance(part, Server):
        part.start()
        part.wait_ready()
        return
    end = time.monotonic() + seconds
    while True:
        try:
            part.start()
            return
        except AssertionError:
            part.kill()
            if time.monotonic() > end:
                raise
            time.sleep(0.5)


PARTS = ["agent of prefill", "agent of decode", "directory", "prefill server", "decode server"]


@pytest.mark.parametrize("part", PARTS)
def test_killed_under_load(pair: Pair, oracle: Oracle, part: str) -> None:
    parts: dict[str, Process | Server] = {
        "agent of prefill": pair.cell.agents["prefill"],
        "agent of decode": pair.cell.agents["decode"],
        "directory": pair.cell.directory,
        "prefill server": pair.prefill,
        "decode server": pair.decode,
    }
    pair.forget_prefixes()
    load = Load(pair, oracle, PARTS.index(part))
    with ThreadPoolExecutor(2) as both:
        wave = both.submit(load.run)
        for _ in range(WAVE // 4):
            load.begun.acquire()
        struck = both.submit(crash(parts[part]))
        outcome = wave.result()
        struck.result()
    print(f"{part}: {outcome}")
    if part == "decode server":  # there is no second one, so a minute of refusals follows
        assert outcome.whole > 0
    else:
        assert outcome.whole > WAVE // 3 and outcome.refused == 0
    pair.wait_known()
    pair.until_handed_over(oracle, seconds=60.0)
    pair.assert_nothing_held()


@pytest.mark.parametrize("name", ["prefill", "decode"])
def test_agent_away_and_back(pair: Pair, oracle: Oracle, name: str) -> None:
    agent, cases = pair.cell.agents[name], oracle.long(200)[:12]
    pair.forget_prefixes()
    before = pair.handed_over()
    agent.kill()
    began = time.monotonic()
    right(pair, cases)
    assert time.monotonic() - began < DEADLINE * 4
    assert pair.handed_over() == before, "something was handed over without an agent"
    revive(agent)
    pair.until_handed_over(oracle)
    pair.assert_nothing_held()


def test_agent_hangs_while_a_cache_comes(pair: Pair, oracle: Oracle) -> None:
    """Its request goes on in other blocks: what the agent may still write is out of use until it answers."""
    pair.forget_prefixes()
    case, decode = oracle.long(300)[0], pair.decode

    def in_doubt() -> float:
        return decode.metric("vllm:meridian_blocks_in_doubt")

    with ThreadPoolExecutor(1) as client, pair.cell.held_bytes():
        params = pair.prefill_leg(case)
        asked = client.submit(post, decode.port, case.request(kv_transfer_params=params))
        until("its blocks are being filled", lambda: decode.metric("vllm:kv_cache_usage_perc") > 0, 10)
        with pair.cell.agents["decode"].paused():
            case.check(asked.result(DEADLINE * 4).tokens)
            until("blocks are in doubt", lambda: in_doubt() > 0, 10, said=in_doubt)
            other = oracle.long(300)[1]
            other.check(post(decode.port, other.request()).tokens)
    until("no block is in doubt", lambda: in_doubt() == 0 or not post(decode.port, case.request()), 20)
    pair.assert_nothing_held()
    pair.until_handed_over(oracle)


def right(pair: Pair, cases: list[Case]) -> None:
    for case, answer in zip(cases, at_once(pair.ask, cases), strict=True):
        case.check(answer.tokens)
