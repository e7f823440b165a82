"""What servers with BudgetLogits must do, on a CPU and on a GPU."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tiny_model
from api_client import at_once, completion, post, streamed
from servers import Server

START, END = (len(tiny_model.SPECIAL) + 256 + i for i in range(2))
ASKED, OURS = "thinking_token_budget", "meridian_max_think_tokens"
CAPS = (0, 1, 2, 3, 6, 17, 30)
REASONING = {"reasoning_start_str": "<think>", "reasoning_end_str": "</think>"}


@contextmanager
def running(
    kind: type[Server],
    directory: Path,
    size: tiny_model.Size,
    *flags: str,
    transfer: Mapping[str, object] | None = None,
) -> Iterator[Server]:
    """A tiny model whose think markers are tokens, and which ends none of its thoughts by itself."""
    tiny_model.write(directory / "tiny", size=size)
    flags = ("--logits-processors", "meridian.vllm:BudgetLogits", *flags)
    flags = (*flags, "--reasoning-config", json.dumps(REASONING))
    server = kind("budget", directory / "tiny", directory / "log", *flags, transfer=transfer)
    try:
        server.wait_ready()
        yield server
    finally:
        server.stop()


def prompt(number: int) -> list[int]:
    """Text and the start of a thought; every other one has a token of the thought too."""
    text = [tiny_model.TEXT[(31 * number + 7 * i) % 256] for i in range(20 + number)]
    return [*text, START, *tiny_model.TEXT[number % 3 : number % 3 + number % 2]]


def ask(server: Server, number: int, **more: Any) -> list[int]:
    return post(server.port, completion(prompt(number), 40, **more)).tokens


def check_caps(server: Server, workers: int, same: bool) -> None:
    """The end stands where vLLM's own budget puts it, greedy and sampled, while rows come, go and move.

    Where a prompt always gives the `same` greedy tokens, all are vLLM's, up to a second thought: that one
    vLLM's older runner does not bound; its newer one does, as ours. What is sampled hangs on the last bit of
    logits, and those on what is computed beside them.
    """
    cases = [(number, cap, warm) for number, cap in enumerate(CAPS * 4) for warm in (0, 1.3)]

    def both(case: tuple[int, int, float]) -> tuple[list[int], list[int]]:
        number, cap, warm = case
        more: dict[str, Any] = {"temperature": warm, "seed": number}
        ours = ask(server, number, vllm_xargs={OURS: cap}, **more)
        return ours, ask(server, number, **{ASKED: cap}, **more)

    forced = 0
    for case, (ours, theirs) in zip(cases, at_once(both, cases, workers=workers), strict=True):
        at = max(0, case[1] - case[0] % 2)  # what the prompt holds of the thought counts
        # Where a thought says its start again, vLLM's newer runner counts from there; ours counts on.
        bound = (ours, theirs) if START not in theirs[:at] else (ours,)
        ends = [tokens.index(END) for tokens in bound if END not in tokens[:at]]
        assert ends == [at] * len(ends), (case, ends, ours, theirs)
        forced += len(ends)
        first = theirs.index(START) + 1 if START in theirs else len(theirs)
        assert not same or case[2] > 0 or ours[:first] == theirs[:first], case
    assert forced > len(cases)
    assert END not in ask(server, 3), "the tiny model ends its thoughts by itself: nothing was tested"
    for cap, asked in ((6, 3), (3, 6)):
        shorter = ask(server, 3, vllm_xargs={OURS: cap}, **{ASKED: asked})
        assert shorter.index(END) == 2, "the longer of two caps held"


def check_preempted(server: Server) -> None:
    """Requests that lose their cache, and are computed again, are ended at the same token.

    Each prompt has four blocks of 32, and its thought needs a fifth, which there is not for eight.
    """
    before = server.metric("vllm:num_preemptions_total")
    cases = [(number, cap) for number, cap in enumerate((36, 45, 54) * 5)]

    def end(case: tuple[int, int]) -> int:
        number, cap = case
        text = [tiny_model.TEXT[(29 * number + 11 * i) % 256] for i in range(100)]
        return post(server.port, completion([*text, START], 60, vllm_xargs={OURS: cap})).tokens.index(END)

    ends = at_once(end, cases, workers=8)
    assert all(at <= cap for at, (_, cap) in zip(ends, cases, strict=True)), ends
    assert sum(at == cap for at, (_, cap) in zip(ends, cases, strict=True)) > len(cases) / 2, ends
    assert server.metric("vllm:num_preemptions_total") > before, "there was room for all: nothing was tested"


def check_refused(server: Server, name: str, wrong: object) -> None:
    """A client hears what is wrong, and the server goes on."""
    answer = post(server.port, completion(prompt(1), 4, vllm_xargs={name: wrong}))
    assert answer.status == 400 and name in answer.error, answer
    assert ask(server, 1, vllm_xargs={OURS: 3}).index(END) == 2


def check_told(server: Server, gateway: int) -> None:
    """The gateway's client hears that a thought was ended, at once and in a stream; no other does."""
    cases = [(number, cap) for number, cap in enumerate((0, 1, 6, 17, 30, 100) * 3)]

    def told(case: tuple[int, int]) -> tuple[object, object, str | None]:
        number, cap = case
        asked = completion(prompt(number), 40, max_think_tokens=cap)
        answer = post(gateway, asked)
        assert answer.status == 200 and answer.body["choices"][0]["stop_reason"] is None, answer
        events = streamed(gateway, {**asked, "stream_options": {"include_usage": True}})
        assert not any(choice.get("stop_reason") for event in events for choice in event["choices"]), events
        return (
            _forced_end(answer.body),
            _forced_end(events[-1]),
            answer.headers.get("x-meridian-forced-end"),
        )

    for case, heard in zip(cases, at_once(told, cases, workers=6), strict=True):
        assert set(heard) == {"hard_cap" if case[1] < 40 else None}, (case, heard)
    # A token to stop at is still told as such; a forced end is told where one token follows it.
    tokens = ask(server, 4, vllm_xargs={OURS: 6})
    at = next(i for i in range(7, 40) if tokens[i] not in tokens[:i])
    stopped = completion(prompt(4), 40, max_think_tokens=6, stop_token_ids=[tokens[at]])
    answer = post(gateway, stopped)
    assert answer.body["choices"][0]["stop_reason"] == tokens[at] and len(answer.tokens) == at + 1, answer
    assert _forced_end(answer.body) == "hard_cap"
    assert _forced_end(post(gateway, completion(prompt(4), 8, max_think_tokens=6)).body) == "hard_cap"
    direct = post(server.port, completion(prompt(4), 40, vllm_xargs={OURS: 6}))
    assert direct.body["choices"][0]["stop_reason"] is None, "a client that did not ask was told"


def _forced_end(body: dict[str, Any]) -> object:
    return (body["usage"].get("completion_tokens_details") or {}).get("forced_end")
