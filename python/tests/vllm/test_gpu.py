"""Prefill and decode by real vLLM servers on one GPU, over proxies with faults. Run by make test-gpu."""

from __future__ import annotations

import contextlib
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from api_client import Answer, completion, post
from gpu_servers import VLLM, GPUServer, vllm_environment
from gpu_world import (
    ANSWER,
    BLOCK,
    DECODES,
    PREFILL,
    PREFILLS,
    World,
    failed,
    handed_over,
    running_world,
    told,
    vram_used,
)
from oracle import Case
from pairs import Pair, Side, assert_nothing_held, have_offered
from servers import Server
from waiting import until

pytestmark = pytest.mark.real
__all__ = ["told"]

ONE_STEP = {"one-step": (Side(("--no-async-scheduling",), block=BLOCK, at=PREFILL), GPUServer)}
"""A prefill server that offers prompts layer by layer."""


@pytest.fixture(scope="module")
def world(meridian_binary: Path) -> Iterator[World]:
    with running_world(meridian_binary, {**PREFILLS, **ONE_STEP, **DECODES}, "tcp") as running:
        yield running


@pytest.mark.parametrize("name", DECODES)
def test_tokens(world: World, name: str) -> None:
    world.check_tokens(name)


@pytest.mark.parametrize("name", DECODES)
def test_many_at_a_time(world: World, name: str) -> None:
    world.check_load(name)


@pytest.mark.parametrize("name", ["pull", "push"])
def test_a_byte_changed_on_the_way(world: World, name: str) -> None:
    """It is noticed, and the bytes come a second time."""
    decode = world.servers[name]
    case, _ = world.asked(20)
    with world.cell.changed_bytes(1):
        case.check(world.hand_over(case, decode).tokens)
    world.assert_nothing_held()


@pytest.mark.parametrize("name", ["pull", "push"])
def test_bytes_changed_at_every_try(world: World, name: str) -> None:
    """The cache never enters the decode server, which computes the prompt itself."""
    decode = world.servers[name]
    case, fresh = world.asked(10)
    before, lost = handed_over(decode), failed(decode)
    with world.cell.changed_bytes():
        Case(case.prompt, tuple(fresh)).check(world.hand_over(case, decode).tokens)
    until("the hand-off counts as failed", lambda: failed(decode) == lost + 1)
    assert handed_over(decode) == before
    world.assert_nothing_held()


def test_gateway(world: World) -> None:
    """Either prefill server gets some; one of them offers prompts layer by layer."""
    before = {name: handed_over(world.servers[name]) for name in DECODES}
    pair = Pair(world.cell, world.prefill, world.servers["pull"], by_prefix=False)
    world.undo.callback(pair.gateway.stop)
    pair.wait_known(len(world.servers))
    prompts = [world.prompt(5 + 2 * i) for i in range(16)]
    answers = [post(pair.port, completion(prompt, ANSWER)) for prompt in prompts]
    placed = [answer.headers["x-meridian-placement"] for answer in answers]
    for prompt, answer, placement in zip(prompts, answers, placed, strict=True):
        found = re.match(r"prefill=(\S+)", placement)
        assert found, placement
        world.cached(prompt, at=world.servers[found[1]]).check(answer.tokens)
    series = "vllm:meridian_offers_ahead_total"
    ahead, asynchronous = world.servers["one-step"].metric(series), world.prefill.metric(series)
    came = sum(handed_over(world.servers[name]) - before[name] for name in DECODES)
    print(f"{came:g} tokens came, {ahead:g} prompts layer by layer; {set(placed)}")
    assert came == sum(map(len, prompts))
    assert ahead > 0 and asynchronous == 0, "with asynchronous scheduling a prompt is offered at its end"
    world.assert_nothing_held()


EVENTS = """
import torch
from meridian.vllm.gpu import record_event
from meridian.vllm.progress import Progress
there, beside = torch.zeros(1 << 20, device="cuda"), torch.cuda.Stream()
def seen():
    with torch.cuda.stream(beside):
        return there[-1].item()
seen(), torch.cuda._sleep(1000), torch.cuda.synchronize()
told, progress = [], Progress(record_event)
torch.cuda._sleep(1_000_000_000)
there.fill_(7)
progress.then(lambda: told.append(seen()))
early = seen(), list(told)
progress.close(30)
print(early, told)
"""


def test_what_is_told_has_been_computed() -> None:
    """While a GPU is busy for half a second, a hook that runs at once would see what was there before."""
    done = subprocess.run([VLLM[0], "-c", EVENTS], env=vllm_environment(), capture_output=True, text=True)
    assert done.stdout.strip() == "(0.0, []) [7.0]", done.stdout + done.stderr[-2000:]


@contextlib.contextmanager
def copying(world: World, to: Server, case: Case) -> Iterator[list[Answer]]:
    """Have a prompt on its way, in the middle of which the proxy stands still."""
    params = have_offered(world.prefill, case)
    answers: list[Answer] = []

    def ask() -> None:
        with contextlib.suppress(OSError):
            answers.append(post(to.port, case.request(kv_transfer_params=params)))

    asking = threading.Thread(target=ask)
    with world.cell.held_bytes():
        asking.start()
        until("bytes are on their way", lambda: any(w.waiting for w in world.cell.proxies.values()))
        yield answers
    asking.join(60)
    assert not asking.is_alive()


def test_prefill_server_killed_in_mid_copy(world: World) -> None:
    decode = world.servers["pull"]
    case, fresh = world.asked(30)
    used, lost = vram_used(), failed(decode)
    with copying(world, decode, case) as answers:
        world.prefill.kill()
    assert tuple(answers[0].tokens) in (tuple(fresh), case.answer)
    print(f"{failed(decode) - lost:g} hand-off failed")
    until("its memory is free", lambda: vram_used() < used - 2000, 30.0)
    assert_nothing_held(decode, seconds=30.0)
    world.check_reborn(decode)


def test_decode_server_killed_in_mid_copy(world: World) -> None:
    decode = world.servers["push"]
    case, _ = world.asked(30)
    used = vram_used()
    with copying(world, decode, case) as answers:
        decode.kill()
    assert answers == []
    until("its memory is free", lambda: vram_used() < used - 2000, 30.0)
    world.assert_nothing_held()
    case, _ = world.asked(15)
    case.check(world.hand_over(case, world.servers["pull"]).tokens)


def test_refused_by_name(world: World) -> None:
    """What cannot be handed off does not start, and says what to do."""
    refused = {
        "asleep": ("--enable-sleep-mode", "start vLLM without --enable-sleep-mode"),
        "eight-bit": ("--kv-cache-dtype=fp8", "start vLLM with --kv-cache-dtype auto"),
    }
    servers = {}
    for name, (flag, _) in refused.items():
        side = Side((flag,), block=BLOCK, at="decode")
        servers[name] = world.cell.start_server(name, world.model, side, GPUServer)
        world.undo.callback(servers[name].stop)
    until("both have ended", lambda: not any(server.alive() for server in servers.values()), 120.0)
    for name, (_, said) in refused.items():
        assert said in servers[name].log_text(), servers[name].log_tail()
