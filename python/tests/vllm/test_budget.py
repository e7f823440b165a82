"""Thoughts of a real vLLM end at the token that was asked for, as by its own `thinking_token_budget`."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny_model
from asking import at_once, completion, post
from conftest import ROOT
from installed import HOME, require_vllm, vllm_environment
from servers import Server

pytestmark = pytest.mark.real

START, END = (len(tiny_model.SPECIAL) + 256 + i for i in range(2))
ASKED, OURS = "thinking_token_budget", "meridian_max_think_tokens"
REASONING = {"reasoning_start_str": "<think>", "reasoning_end_str": "</think>"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    require_vllm()
    directory = tmp_path_factory.mktemp("budget")
    tiny_model.write(directory / "tiny")
    flags = ("--logits-processors", "meridian.vllm:BudgetLogits", "--reasoning-config", json.dumps(REASONING))
    running = Server("budget", directory / "tiny", directory / "log", *flags)
    try:
        running.wait_ready()
        yield running
    finally:
        running.stop()


def prompt(number: int) -> list[int]:
    text = [tiny_model.TEXT[(31 * number + 7 * i) % 256] for i in range(20 + number)]
    return [*text, START, *tiny_model.TEXT[number % 3 : number % 3 + number % 2]]


def ask(server: Server, number: int, **more: Any) -> list[int]:
    return post(server.port, completion(prompt(number), 40, **more)).tokens


CAPS = (0, 1, 2, 3, 6, 17, 30)


def test_the_end_stands_where_vllm_itself_puts_it(server: Server) -> None:
    """Greedy and sampled, eight at a time, so that rows come, go and move."""
    cases = [
        (number, cap, {"temperature": warm, "seed": number})
        for number, cap in enumerate(CAPS * 4)
        for warm in (0, 1.3)
    ]

    def both(case: tuple[int, int, dict[str, Any]]) -> tuple[list[int], list[int]]:
        number, cap, more = case
        return (
            ask(server, number, vllm_xargs={OURS: cap}, **more),
            ask(server, number, **{ASKED: cap}, **more),
        )

    forced = 0
    for case, (ours, theirs) in zip(cases, at_once(both, cases, workers=8), strict=True):
        number, cap, _ = case
        # vLLM's older runner bounds the first thought alone, its newer one each, as ours do.
        first = theirs.index(START) + 1 if START in theirs else len(theirs)
        assert ours[:first] == theirs[:first], case
        at = max(0, cap - number % 2)  # what the prompt holds of the thought counts
        if END not in ours[:at]:
            assert ours.index(END) == at, case
            forced += 1
    assert forced > len(cases) / 2
    free = ask(server, 3)
    assert END not in free, "the tiny model ends its thoughts by itself: nothing was tested"
    three = ask(server, 3, **{ASKED: 3})
    for cap, asked in ((6, 3), (3, 6)):
        both_asked = ask(server, 3, vllm_xargs={OURS: cap}, **{ASKED: asked})
        assert both_asked == three, "the shorter of two caps was not the one that held"


@pytest.mark.parametrize(
    "wrong", [-1, 1 << 31, 1 << 62, 1.5, "3", [3], ["x" * 5000]], ids=lambda value: str(value)[:20]
)
def test_what_no_request_can_mean_is_an_error_of_the_client(server: Server, wrong: object) -> None:
    answer = post(server.port, completion(prompt(1), 4, vllm_xargs={OURS: wrong}))
    assert answer.status == 400 and OURS in answer.error, answer
    assert ask(server, 1, vllm_xargs={OURS: 3}).index(END) == 2


def test_a_client_cannot_speak_for_the_scheduler(server: Server) -> None:
    for name in ("meridian_sequence", "meridian_max_thnik_tokens"):
        answer = post(server.port, completion(prompt(1), 4, vllm_xargs={name: 1}))
        assert answer.status == 400 and name in answer.error, answer


def test_on_batches_that_the_test_plays() -> None:
    """budget_unit.py needs torch, which vLLM's environment has."""
    require_vllm()
    tests = Path(__file__).with_name("budget_unit.py")
    plain = f"-m pytest -q -c {os.devnull} --rootdir {tests.parent} -p no:cacheprovider -p no:asyncio"
    done = subprocess.run(
        [str(HOME / "bin" / "python"), *plain.split(), str(tests)],
        env=vllm_environment(),
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-4000:]
