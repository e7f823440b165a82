"""The gateway before vLLM: what it passes through, vLLM's own benchmark, and what vLLM's cache holds."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny_model
from api_client import post
from installed import HOME, vllm_environment
from pairs import Pair, Side, running_pair, told
from servers import BLOCK, free_port
from waiting import until

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("told")]
__all__ = ["told"]

PROMPTS = 16


def publishing() -> Side:
    """Return a server that says what its cache holds, and tells the gateway where; it knows tools."""
    events = {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": f"tcp://*:{free_port()}",
        "replay_endpoint": f"tcp://*:{free_port()}",
    }
    tools = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")
    return Side(("--kv-events-config", json.dumps(events), *tools))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, meridian_binary: Path) -> Iterator[Pair]:
    model = tmp_path_factory.mktemp("model")
    tiny_model.write(model)
    with running_pair(meridian_binary, model, publishing(), publishing(), by_prefix=True) as running:
        yield running


def admin_page(pair: Pair, path: str) -> Any:
    """Return a page of the gateway's admin listener, whose address the gateway says when it starts."""
    admin = re.search(r"admin at (http://\S+)", pair.gateway.ready)
    assert admin, pair.gateway.ready
    with urllib.request.urlopen(admin[1] + path, timeout=10) as page:
        return json.load(page)


@pytest.mark.parametrize(
    ("backend", "endpoint"), [("openai", "/v1/completions"), ("openai-chat", "/v1/chat/completions")]
)
def test_bench_serve(pair: Pair, tmp_path: Path, backend: str, endpoint: str) -> None:
    """The benchmark finds the model and its tokenizer, and every stream is whole."""
    command = [
        *(str(HOME / "bin" / "vllm"), "bench", "serve", "--base-url", f"http://127.0.0.1:{pair.port}"),
        *("--backend", backend, "--endpoint", endpoint, "--dataset-name", "random"),
        *("--random-input-len", "128", "--random-output-len", "12", "--num-prompts", str(PROMPTS)),
        *("--max-concurrency", "4", "--ignore-eos", "--save-result", "--result-dir", str(tmp_path)),
        *("--result-filename", "result.json"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, env=vllm_environment())
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["completed"], result.get("failed", 0)) == (PROMPTS, 0)
    assert result["total_output_tokens"] == PROMPTS * 12
    assert result["median_ttft_ms"] > 0


COLOURS: dict[str, Any] = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "green", "blue"]}, "dark": {"type": "boolean"}},
    "required": ["colour", "dark"],
    "additionalProperties": False,
}
QUESTION = "Which colour has the sea in the evening, and is it a dark one? " * 3


def chat(port: int, **more: object) -> dict[str, Any]:
    """Return the message of an answer."""
    body = {"model": "tiny", "messages": [{"role": "user", "content": QUESTION}], "temperature": 0}
    answer = post(port, body | more, "/v1/chat/completions")
    assert answer.status == 200, answer
    message: dict[str, Any] = answer.body["choices"][0]["message"]
    return message


def test_structured_output(pair: Pair) -> None:
    """Of a model that knows nothing, whose answers only the schema gives a form."""
    schema = {"name": "colour", "schema": COLOURS, "strict": True}
    asked = {"response_format": {"type": "json_schema", "json_schema": schema}, "max_tokens": 200}
    pair.forget_prefixes()
    handed_over = pair.handed_over()
    message = chat(pair.port, **asked)
    assert pair.handed_over() > handed_over
    assert json.loads(message["content"])["colour"] in COLOURS["properties"]["colour"]["enum"]
    assert message["content"] == chat(pair.decode.port, **asked)["content"]


def test_tool_calls(pair: Pair) -> None:
    tool = {"type": "function", "function": {"name": "paint", "parameters": COLOURS}}
    named = {"type": "function", "function": {"name": "paint"}}
    asked = {"tools": [tool], "tool_choice": named, "max_tokens": 200}
    pair.forget_prefixes()
    handed_over = pair.handed_over()
    (call,) = chat(pair.port, **asked)["tool_calls"]
    assert pair.handed_over() > handed_over
    (direct,) = chat(pair.decode.port, **asked)["tool_calls"]
    assert call["type"] == "function" and call["function"] == direct["function"]
    assert call["function"]["name"] == "paint"


def held(pair: Pair, prompt: list[int]) -> dict[str, Any]:
    """Ask for a token, and return what the gateway knew of the decode server's cache."""
    answer = post(pair.port, {"model": "tiny", "prompt": prompt, "max_tokens": 1, "temperature": 0})
    assert answer.status == 200, answer
    asked = answer.headers["x-meridian-request-id"]

    def records() -> list[Any]:  # a request is recorded after it was answered
        latest = admin_page(pair, "/debug/requests")["latest"]
        return [record for record in latest if record["id"] == asked]

    until("a record", lambda: bool(records()))
    known: dict[str, dict[str, Any]] = {h["engine"]: h for h in records()[0].get("held", [])}
    return known.get("decode", {"tokens": 0})


def test_cache_events(pair: Pair) -> None:
    """What vLLM has cached is known block by block, and what it has forgotten is known to be gone."""
    if pair.decode.version() < (0, 32):
        pytest.skip("does not apply: this vLLM does not say where it publishes")
    prompt = [(i * 7) % 300 + 5 for i in range(5 * BLOCK + 3)]

    def blocks() -> int:
        engines = {engine["id"]: engine for engine in admin_page(pair, "/debug/engines")["engines"]}
        (cache,) = engines["decode"]["caches"]
        assert cache["connected"] and cache.get("block_tokens") in (None, BLOCK), cache
        return int(cache["blocks"])

    def forget() -> None:
        pair.forget_prefixes()
        held(pair, [7, 8, 9])  # vLLM publishes when it does something
        until("an empty cache", lambda: blocks() == 0)

    forget()
    assert held(pair, prompt)["tokens"] == 0
    until("five blocks", lambda: blocks() == 5)
    assert held(pair, prompt) == {"engine": "decode", "tokens": 5 * BLOCK, "told": True}
    assert held(pair, prompt[: 2 * BLOCK + 9]) == {"engine": "decode", "tokens": 2 * BLOCK, "told": True}
    forget()
    assert held(pair, prompt)["tokens"] == 0
