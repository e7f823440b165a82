"""The same within a host, where agents copy from GPU memory to GPU memory. Run by make test-gpu."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from api_client import Answer, at_once, post
from gpu_world import (
    ANSWER,
    DECODES,
    PREFILLS,
    World,
    handed_over,
    running_world,
    told,
    vram_used,
)
from oracle import Case
from pairs import assert_nothing_held, have_offered
from waiting import until

pytestmark = pytest.mark.real
__all__ = ["told"]


@pytest.fixture(scope="module")
def world(meridian_binary: Path) -> Iterator[World]:
    with running_world(meridian_binary, {**PREFILLS, **DECODES}, "host,tcp") as running:
        yield running


@pytest.mark.parametrize("name", DECODES)
def test_tokens(world: World, name: str) -> None:
    before = sum(proxy.carried for proxy in world.cell.proxies.values())
    world.check_tokens(name)
    carried = sum(proxy.carried for proxy in world.cell.proxies.values()) - before
    assert carried < 1 << 20, f"{carried} bytes went over TCP, where caches are larger than that"


@pytest.mark.parametrize("name", DECODES)
def test_many_at_a_time(world: World, name: str) -> None:
    world.check_load(name)


@pytest.mark.parametrize("name", ["pull", "push"])
def test_prefill_server_killed_under_load(world: World, name: str) -> None:
    """Whatever was on its way: every request is answered, and nothing stays held."""
    decode, used, before = world.servers[name], vram_used(), handed_over(world.servers[name])
    offered = []
    for _ in range(16):
        case = Case(world.prompt(40), (0,) * ANSWER)
        offered.append((case, have_offered(world.prefill, case)))

    def ask(of: tuple[Case, dict[str, object]]) -> Answer:
        return post(decode.port, of[0].request(kv_transfer_params=of[1]))

    def strike() -> None:
        time.sleep(0.03)
        world.prefill.kill()

    striking = threading.Thread(target=strike)
    striking.start()
    answers = at_once(ask, offered, workers=16)
    striking.join()
    assert all(len(answer.tokens) == ANSWER for answer in answers)
    came = (handed_over(decode) - before) / len(offered[0][0].prompt)
    print(f"{name}: {came:g} of {len(offered)} caches came before the server was gone")
    until("its memory is free", lambda: vram_used() < used - 2000, 30.0)
    assert_nothing_held(decode, seconds=30.0)
    world.check_reborn(decode)
