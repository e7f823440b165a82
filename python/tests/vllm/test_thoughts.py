"""The gateway before a vLLM without a reasoning parser gives what vLLM gives with one."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import api_client
import pytest
import tiny_model
from api_client import post
from budget_checks import END, REASONING, START
from installed import require_vllm
from processes import Process
from servers import Server, free_port, wait_all_ready

pytestmark = pytest.mark.real

CHAT = "/v1/chat/completions"
CAPS = (0, 1, 6, 17)

TABLE = f"""
[model.tiny]
think_start_token_ids = [{START}]
think_end_token_ids = [{END}]
think_start_texts = ["<think>"]
think_end_texts = ["</think>"]
reasoning_parser = "deepseek_r1"
think_limit = "thinking_token_budget"
"""


@dataclass(frozen=True)
class World:
    """A server that splits thoughts, one that does not, and a gateway before each."""

    parsed: Server
    raw: Server
    before_parsed: int
    before_raw: int


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, meridian_binary: Path) -> Iterator[World]:
    require_vllm()
    home = tmp_path_factory.mktemp("thoughts")
    tiny_model.write(home / "tiny")
    (home / "template.jinja").write_text(tiny_model.CHAT.replace("<|assistant|>{%", "<|assistant|><think>{%"))
    (home / "meridian.toml").write_text(TABLE)
    flags = ("--reasoning-config", json.dumps(REASONING), "--chat-template", str(home / "template.jinja"))
    with contextlib.ExitStack() as undo:
        servers = []
        for name, more in (("parsed", ("--reasoning-parser", "deepseek_r1")), ("raw", ())):
            servers.append(Server(name, home / "tiny", home / f"{name}.log", *flags, *more))
            undo.callback(servers[-1].stop)
        wait_all_ready(*servers)
        ports = []
        for server in servers:
            ports.append(free_port())
            gateway = Process(
                meridian_binary,
                home / f"gateway-{server.name}.log",
                *("gateway", "--config", str(home / "meridian.toml"), "--state", str(home / server.name)),
                *("--listen", f"127.0.0.1:{ports[-1]}", "--both", server.url),
            )
            undo.callback(gateway.stop)
        yield World(servers[0], servers[1], ports[0], ports[1])


def question(number: int, **more: object) -> dict[str, object]:
    text = "".join(chr(ord("a") + (7 * number + 3 * i) % 26) for i in range(20 + number))
    asked = {"model": "tiny", "messages": [{"role": "user", "content": text}], "max_tokens": 40}
    return {**asked, "temperature": 0, "ignore_eos": True, **more}


def chunks(port: int, body: dict[str, object]) -> list[dict[str, Any]]:
    """Return the events of a stream, without what every request has of its own."""
    found = api_client.streamed(port, body, CHAT)
    return [
        {name: value for name, value in event.items() if name not in ("id", "created")} for event in found
    ]


def streamed(port: int, body: dict[str, object]) -> tuple[str, str]:
    deltas = [choice["delta"] for event in chunks(port, body) for choice in event["choices"]]
    thought, answer = (
        "".join(delta.get(name) or "" for delta in deltas) for name in ("reasoning", "content")
    )
    return thought, answer


def joined(events: list[dict[str, Any]]) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Return a stream's texts, and what its events say beside: how many tokens come in one is chance."""
    texts: dict[str, str] = {}
    rest: list[dict[str, Any]] = []
    for event in events:
        for choice in event["choices"]:
            for name in ("reasoning", "content"):
                texts[name] = texts.get(name, "") + (choice["delta"].pop(name, None) or "")
        if event not in rest:
            rest.append(event)
    return texts, rest


def at_once(port: int, body: dict[str, object]) -> tuple[str, str]:
    answer = post(port, body, CHAT)
    assert answer.status == 200, answer
    message = answer.body["choices"][0]["message"]
    return message["reasoning"] or "", message["content"] or ""


@pytest.mark.parametrize("cap", CAPS)
def test_the_gateway_splits_as_vllm_does(world: World, cap: int) -> None:
    """Streamed and at once, with a limit that the gateway told the server."""
    for number in range(3):
        direct = question(number, thinking_token_budget=cap)
        ours = question(number, max_think_tokens=cap)
        told = at_once(world.parsed.port, direct)
        assert "</think>" in at_once(world.raw.port, direct)[1], (
            "the server splits by itself: nothing is tested"
        )
        assert told[1] and bool(told[0]) == bool(cap), told
        assert at_once(world.before_raw, ours) == told
        assert streamed(world.before_raw, ours) == told
        thought, answer = streamed(world.parsed.port, direct)
        # vLLM's own stream loses bytes of a character that the end of the thought has cut off.
        assert (thought.rstrip("\ufffd"), answer) == (told[0].rstrip("\ufffd"), told[1])


def test_thoughts_are_counted(world: World) -> None:
    for cap in CAPS:
        asked = question(cap, max_think_tokens=cap, return_token_ids=True)
        usage = post(world.before_raw, asked, CHAT).body["usage"]
        assert usage["completion_tokens_details"]["reasoning_tokens"] == cap
        last = chunks(world.before_raw, {**asked, "stream_options": {"include_usage": True}})[-1]
        assert last["usage"]["completion_tokens_details"]["reasoning_tokens"] == cap


def test_a_server_that_splits_is_not_touched(world: World) -> None:
    for number in range(3):
        asked = question(number, thinking_token_budget=5, stream_options={"include_usage": True})
        assert joined(chunks(world.before_parsed, asked)) == joined(chunks(world.parsed.port, asked))
