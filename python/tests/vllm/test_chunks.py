"""A prefill server that computes prompts in chunks, each of which moves while the next is computed."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny_model
from api_client import Stream, at_once, post
from installed import run_unit
from oracle import Case, Oracle, oracle
from pairs import Pair, Side, running_pair, told
from waiting import until

pytestmark = pytest.mark.real
__all__ = ["oracle", "told"]

BLOCKS = 64
"""Of 32 tokens: an eighth, which prompts may have before they are computed, is 256."""
CHUNK = 8
ANSWERING = 7
"""They leave one token of each step for a prompt."""


@pytest.fixture(scope="module")
def pair(oracle: Oracle, meridian_binary: Path) -> Iterator[Pair]:
    flags = (
        *("--scheduler-cls", "meridian.vllm.Scheduler", "--max-num-batched-tokens", str(CHUNK)),
        *("--num-gpu-blocks-override", str(BLOCKS)),
    )
    with running_pair(meridian_binary, oracle.model, Side(flags), Side()) as running:
        yield running


def medium(oracle: Oracle) -> list[Case]:
    """Return cases with prompts of many chunks that may have all blocks at once."""
    return [case for case in oracle.long(200) if len(case.prompt) <= 256]


def handed_off(pair: Pair, agent: str) -> list[dict[str, Any]]:
    """Return what an agent says of its last hand-offs."""
    asked = [str(pair.cell.binary), "explain", "--state", str(pair.cell.state), "--agent", agent]
    said = subprocess.run([*asked, "--all", "--json"], check=True, capture_output=True, text=True).stdout
    found: list[dict[str, Any]] = json.loads(said)["handoffs"]
    return found


@pytest.mark.usefixtures("told")
def test_chunks_move_while_the_rest_is_computed(pair: Pair, oracle: Oracle) -> None:
    """More than half of a prompt had moved when its last token was computed.

    Where others want the cores, who takes a cache may come too late to a prompt that is computed in a
    tenth of a second. So it is asked for until it is so, and tokens are compared each time.
    """
    cases, early = medium(oracle)[:4], 0.0
    for case in cases * 6:
        pair.forget_prefixes()
        before = handed_off(pair, "decode")
        case.check(pair.ask(case).tokens)
        known = {record["id"] for record in before}
        (record,) = (r for r in handed_off(pair, "decode") if r["id"] not in known)
        assert record["tokens"] == len(case.prompt)
        early = record.get("early_bytes", 0) / record["bytes"]
        print(f"{len(case.prompt)} tokens: {early:.2f} of {record['bytes']} bytes had moved")
        if early > 1 / 2:
            break
    assert early > 1 / 2, "no prompt moved before it was computed"
    pair.assert_nothing_held()


@pytest.mark.usefixtures("told")
def test_many_at_once(pair: Pair, oracle: Oracle) -> None:
    """Prompts that share their beginnings, and of which some get all blocks at once and some do not."""
    pair.forget_prefixes()
    cases = [case for case in oracle.cases if len(case.prompt) <= 256][:16]
    for case, answer in zip(cases, at_once(pair.ask, cases, workers=4), strict=True):
        case.check(answer.tokens)
    pair.assert_nothing_held()


@pytest.mark.usefixtures("told")
def test_a_prompt_that_loses_its_blocks_while_they_are_read(pair: Pair, oracle: Oracle) -> None:
    """Answers grow on the prefill server until the prompt has to go, which came last."""
    case = medium(oracle)[0]
    lost, chunked = pair.prefill.metric("vllm:num_preemptions_total"), pair.chunked()
    answering = oracle.long_answers[:ANSWERING]
    for _ in range(6):  # answers that begin apart may end before it has to go
        pair.forget_prefixes()
        for c in answering:  # so that they all begin at once
            c.check(post(pair.prefill.port, c.request(max_tokens=1)).tokens, begun=True)
        streams = [Stream() for _ in answering]
        readers = [
            threading.Thread(target=stream.read, args=(pair.prefill.port, c.request()))
            for stream, c in zip(streams, answering, strict=True)
        ]
        for reader in readers:
            reader.start()
        until("the answers begin", lambda: all(stream.first is not None for stream in streams))  # noqa: B023
        case.check(pair.ask(case).tokens)
        for reader, stream, right in zip(readers, streams, answering, strict=True):
            reader.join()
            right.check(stream.tokens)
        pair.assert_nothing_held()
        if pair.prefill.metric("vllm:num_preemptions_total") > lost and pair.chunked() > chunked:
            break
    assert pair.prefill.metric("vllm:num_preemptions_total") > lost, "it did not lose its blocks"
    assert pair.chunked() > chunked, "it was not offered before"
    pair.forget_prefixes()
    before = pair.handed_over()
    case.check(pair.ask(case).tokens)
    assert pair.handed_over() > before, "no prompt comes over any more"


def test_with_made_up_outputs(tmp_path: Path) -> None:
    """On vLLM's own scheduler and connector, of which chunks_unit.py plays the workers and the agent."""
    tiny_model.write(tmp_path / "tiny", size=tiny_model.FOR_CPU)
    run_unit("chunks_unit.py", UNIT_MODEL=str(tmp_path / "tiny"))
