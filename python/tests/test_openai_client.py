"""A whole cell, used by the official OpenAI client as any server of that API is."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionChunk
from processes import PATIENCE, Process
from waiting import until

MODEL = "tiny"
LONG = "The quick brown fox jumps over the lazy dog. " * 8
"""A prompt that is worth a prefill engine of its own."""
THINK = {"think_tokens": 6, "ignore_eos": True}
"""A thought of six tokens; and the answer goes on to its budget."""
NO_THINK = {"think_tokens": 0, "ignore_eos": True}


@dataclass
class Cell:
    """A running cell."""

    binary: Path
    state: Path
    status: dict[str, Any]

    def engines(self) -> list[dict[str, Any]]:
        """Return what the engines say of themselves now."""
        status = self.ask_status()
        return [part["stats"] for part in status["parts"] if part["kind"] in ("prefill", "decode")]

    def ask_status(self) -> dict[str, Any]:
        command: list[str | Path] = [self.binary, "status", "--state", self.state, "--json"]
        output = subprocess.run(command, capture_output=True, check=True, timeout=PATIENCE).stdout
        status: dict[str, Any] = json.loads(output)
        return status


@pytest.fixture(scope="module")
def cell(meridian_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    state = tmp_path_factory.mktemp("cell") / "state"
    log = state.parent / "up.log"
    command: list[str | Path] = [
        meridian_binary,
        "up",
        "--model",
        MODEL,
        "--workers",
        "1x2",
        "--state",
        state,
    ]
    command += ["--prefill", "tp=1,block=16", "--decode", "tp=2,pp=2,block=32"]
    command += ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
    with log.open("w") as output:
        up = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    cell = Cell(meridian_binary, state, {})
    try:

        def all_up() -> bool:
            assert up.poll() is None, log.read_text()
            with contextlib.suppress(subprocess.CalledProcessError):
                cell.status = cell.ask_status()
            return bool(cell.status.get("all_up"))

        until("all are up", all_up, said=log.read_text)
        yield cell
    finally:
        up.terminate()
        try:
            assert up.wait(PATIENCE) == 0, log.read_text()
        finally:
            up.kill()
            up.wait()


@pytest.fixture(scope="module")
def client(cell: Cell) -> Iterator[OpenAI]:
    with OpenAI(
        base_url=cell.status["gateway"] + "/v1", api_key="none", max_retries=0, timeout=PATIENCE
    ) as client:
        yield client


@pytest.fixture(scope="module")
def strict_gateway(cell: Cell) -> Iterator[str]:
    """A second gateway of the cell, with a key and room for one request."""
    config = cell.state.parent / "strict.toml"
    config.write_text("[gateway]\nmax_running = 1\nmax_waiting = 1\nqueue_timeout_ms = 100\n")
    process = Process(
        cell.binary,
        cell.state.parent / "strict.log",
        *("gateway", "--state", str(cell.state), "--config", str(config), "--api-key", "sesame"),
        *("--listen", "127.0.0.1:0", "--admin", ""),
    )
    yield process.ready.split("ready at ")[1].split(",")[0].split()[0] + "/v1"
    process.stop()


def chat(content: str) -> list[Any]:
    return [{"role": "user", "content": content}]


def test_models(client: OpenAI) -> None:
    models = client.models.list().data
    assert [model.id for model in models] == [MODEL]
    assert client.models.retrieve(MODEL) == models[0]
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


@pytest.mark.parametrize("prompt", ["Hello", LONG], ids=["short", "long"])
def test_completions_stream_what_they_return(client: OpenAI, prompt: str) -> None:
    whole = client.completions.create(model=MODEL, prompt=prompt, max_tokens=40, temperature=0)
    assert whole.choices[0].finish_reason == "length"
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 40
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + 40
    stream = client.completions.create(
        model=MODEL,
        prompt=prompt,
        max_tokens=40,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    assert "".join(choice.text for chunk in chunks for choice in chunk.choices) == whole.choices[0].text
    reasons = [choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason]
    assert reasons == ["length"]
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    counts = ("prompt_tokens", "completion_tokens", "total_tokens")
    assert [getattr(chunks[-1].usage, name) for name in counts] == [
        getattr(whole.usage, name) for name in counts
    ]
    assert {chunk.id for chunk in chunks} == {chunks[0].id}


def said(chunks: list[ChatCompletionChunk]) -> tuple[str, str]:
    """Return the thought and the answer of a stream."""
    deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
    thought = "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas)
    return thought, "".join(delta.content or "" for delta in deltas)


@pytest.mark.parametrize("content", ["Hello", LONG], ids=["short", "long"])
@pytest.mark.parametrize("temperature", [0, 0.8], ids=["greedy", "sampled"])
def test_chats_stream_what_they_return(client: OpenAI, content: str, temperature: float) -> None:
    whole = client.chat.completions.create(
        model=MODEL, messages=chat(content), max_tokens=30, temperature=temperature, seed=11, extra_body=THINK
    )
    message = whole.choices[0].message
    thought = getattr(message, "reasoning_content", None)
    assert message.role == "assistant"
    assert message.content
    assert thought is not None and len(thought) == 6
    assert "think>" not in thought + message.content
    assert whole.choices[0].finish_reason == "length"
    assert whole.usage is not None and whole.usage.completion_tokens == 30
    assert whole.usage.completion_tokens_details is not None
    assert whole.usage.completion_tokens_details.reasoning_tokens == 6
    chunks = list(
        client.chat.completions.create(
            model=MODEL,
            messages=chat(content),
            max_completion_tokens=30,
            temperature=temperature,
            seed=11,
            extra_body=THINK,
            stream=True,
        )
    )
    assert said(chunks) == (thought, message.content)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert all(chunk.usage is None for chunk in chunks)


def test_usage_comes_last_when_it_is_asked_for(client: OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model=MODEL,
            messages=chat("Hello"),
            max_tokens=9,
            extra_body=THINK,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert [chunk for chunk in chunks if chunk.usage] == [chunks[-1]]
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None and chunks[-1].usage.completion_tokens == 9


def test_a_long_prompt_is_handed_over(client: OpenAI, cell: Cell) -> None:
    before = sum(engine["handoffs"]["ready"] for engine in cell.engines())
    client.completions.create(model=MODEL, prompt="A new one. " + LONG, max_tokens=4)
    assert sum(engine["handoffs"]["ready"] for engine in cell.engines()) == before + 1


def test_logprobs_of_chats(client: OpenAI) -> None:
    def ask(**more: Any) -> Any:
        return client.chat.completions.create(
            model=MODEL,
            messages=chat("Hello"),
            max_tokens=12,
            temperature=0,
            logprobs=True,
            top_logprobs=3,
            extra_body=NO_THINK,
            **more,
        )

    whole = ask().choices[0]
    tokens = whole.logprobs.content
    assert len(tokens) == 12
    for token in tokens:
        best = [top.logprob for top in token.top_logprobs]
        assert len(best) == 3
        assert best == sorted(best, reverse=True)
        assert token.logprob <= 0
        assert bytes(token.bytes).decode() == token.token
    answer = "".join(token.token for token in tokens if not token.token.endswith("think>"))
    assert answer == whole.message.content
    streamed = [
        token
        for chunk in ask(stream=True)
        for choice in chunk.choices
        for token in (choice.logprobs.content if choice.logprobs else [])
    ]
    assert streamed == tokens


def test_logprobs_of_completions(client: OpenAI) -> None:
    choice = client.completions.create(
        model=MODEL, prompt="Hello", max_tokens=8, temperature=0, logprobs=2
    ).choices[0]
    assert choice.logprobs is not None
    assert choice.logprobs.tokens is not None and "".join(choice.logprobs.tokens) == choice.text
    assert choice.logprobs.token_logprobs is not None and len(choice.logprobs.token_logprobs) == 8
    assert choice.logprobs.top_logprobs is not None and len(choice.logprobs.top_logprobs) == 8
    assert choice.logprobs.text_offset is not None
    starts = [choice.text[offset:] for offset in choice.logprobs.text_offset]
    assert all(start.startswith(token) for start, token in zip(starts, choice.logprobs.tokens, strict=True))


def test_stop(client: OpenAI) -> None:
    def ask(**more: Any) -> Any:
        return client.completions.create(
            model=MODEL, prompt="Tell me", max_tokens=60, temperature=0, extra_body=NO_THINK, **more
        )

    whole = ask().choices[0].text
    word = whole[20:22]
    cut = ask(stop=[word, "never said"]).choices[0]
    assert cut.finish_reason == "stop"
    assert cut.text == whole[: whole.index(word)]
    chunks = list(ask(stop=word, stream=True))
    assert "".join(choice.text for chunk in chunks for choice in chunk.choices) == cut.text
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_several_choices(client: OpenAI) -> None:
    def ask(**more: Any) -> Any:
        return client.chat.completions.create(
            model=MODEL,
            messages=chat(LONG),
            max_tokens=16,
            temperature=1,
            seed=5,
            n=3,
            extra_body=NO_THINK,
            **more,
        )

    whole = ask()
    texts = {choice.index: choice.message.content for choice in whole.choices}
    assert sorted(texts) == [0, 1, 2]
    assert len(set(texts.values())) == 3
    assert whole.usage.completion_tokens == 48
    streamed = dict.fromkeys(texts, "")
    for chunk in ask(stream=True):
        for choice in chunk.choices:
            streamed[choice.index] += choice.delta.content or ""
    assert streamed == texts


def test_a_seed_repeats(client: OpenAI) -> None:
    def ask(seed: int) -> str | None:
        choice = client.chat.completions.create(
            model=MODEL,
            messages=chat("Hello"),
            max_tokens=24,
            temperature=1,
            top_p=0.95,
            seed=seed,
            extra_body=NO_THINK,
        ).choices[0]
        return choice.message.content

    assert ask(7) == ask(7)
    assert ask(7) != ask(8)


def test_many_streams_at_once(client: OpenAI, cell: Cell) -> None:
    def prompt(number: int) -> str:
        return f"Request {number}: " + (LONG if number % 2 else "short")

    async def stream(many: AsyncOpenAI, number: int) -> str:
        chunks = await many.completions.create(
            model=MODEL, prompt=prompt(number), max_tokens=24, temperature=0.9, seed=number, stream=True
        )
        return "".join([choice.text async for chunk in chunks for choice in chunk.choices])

    async def all_of_them() -> list[str]:
        url = cell.status["gateway"] + "/v1"
        async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=PATIENCE) as many:
            return await asyncio.gather(*(stream(many, number) for number in range(32)))

    streamed = asyncio.run(all_of_them())
    assert len(set(streamed)) == 32
    for number in range(0, 32, 5):
        alone = client.completions.create(
            model=MODEL, prompt=prompt(number), max_tokens=24, temperature=0.9, seed=number
        )
        assert streamed[number] == alone.choices[0].text


def test_a_stream_that_is_closed_early_is_cancelled(client: OpenAI, cell: Cell) -> None:
    before = sum(engine["tokens"]["generated"] for engine in cell.engines())
    with client.completions.create(
        model=MODEL, prompt=LONG, n=16, max_tokens=1500, stream=True, extra_body={"ignore_eos": True}
    ) as stream:
        for _, _ in zip(range(3), stream, strict=False):
            pass
    until(
        "nothing runs", lambda: not any(engine["running"] or engine["waiting"] for engine in cell.engines())
    )
    generated = sum(engine["tokens"]["generated"] for engine in cell.engines())
    assert generated - before < 16 * 1500 / 2  # it did not just end
    time.sleep(0.1)
    assert sum(engine["tokens"]["generated"] for engine in cell.engines()) == generated


def test_bad_requests(client: OpenAI) -> None:
    wrong: list[tuple[str | None, dict[str, Any]]] = [
        ("kv_transfer_params", {"extra_body": {"kv_transfer_params": {"do_remote_decode": True}}}),
        ("max_tokens", {"max_tokens": 0}),
        ("n", {"n": 0}),
        ("echo", {"echo": True}),
        ("best_of", {"best_of": 3}),
        ("suffix", {"suffix": "the end"}),
        ("logit_bias", {"logit_bias": {"72": 5}}),
        (None, {"temperature": -1}),
        (None, {"top_p": 2}),
        (None, {"logprobs": 50}),
        (None, {"prompt": [1 << 20]}),
    ]
    for parameter, arguments in wrong:
        with pytest.raises(openai.BadRequestError) as refused:
            client.completions.create(**({"model": MODEL, "prompt": "Hello"} | arguments))
        assert refused.value.param == parameter, refused.value
        assert refused.value.type == "invalid_request_error"
    with pytest.raises(openai.BadRequestError) as too_long:
        client.completions.create(model=MODEL, prompt="x" * 100_000, max_tokens=1)
    assert too_long.value.code == "context_length_exceeded"
    with pytest.raises(openai.NotFoundError) as unknown:
        client.completions.create(model="other", prompt="Hello")
    assert unknown.value.code == "model_not_found"
    assert MODEL in unknown.value.message


def test_errors_of_streams_are_errors(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model=MODEL, messages=chat("Hello"), temperature=-1, stream=True)


def test_a_key_is_needed_where_one_is_set(strict_gateway: str) -> None:
    with OpenAI(base_url=strict_gateway, api_key="wrong", max_retries=0) as stranger:
        with pytest.raises(openai.AuthenticationError) as refused:
            stranger.completions.create(model=MODEL, prompt="Hello", max_tokens=1)
        assert refused.value.code == "invalid_api_key"
        with pytest.raises(openai.AuthenticationError):
            stranger.models.list()
    with OpenAI(base_url=strict_gateway, api_key="sesame", max_retries=0) as friend:
        assert friend.completions.create(model=MODEL, prompt="Hello", max_tokens=1).choices


def test_a_full_queue(strict_gateway: str) -> None:
    with OpenAI(base_url=strict_gateway, api_key="sesame", max_retries=0, timeout=PATIENCE) as client:
        ask: dict[str, Any] = {"model": MODEL, "prompt": "Hello", "extra_body": {"ignore_eos": True}}
        with client.completions.create(n=16, max_tokens=1500, stream=True, **ask) as stream:
            next(stream)
            with pytest.raises(openai.RateLimitError) as refused:
                client.completions.create(max_tokens=1, **ask)
        assert int(refused.value.response.headers["retry-after"]) >= 1
        patient = client.with_options(max_retries=4)
        assert patient.completions.create(max_tokens=1, **ask).choices
