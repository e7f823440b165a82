"""Hugging Face's transformers in two processes, one for prefill, one for decode: tokens as of one process."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, require
from processes import Agent, Process

pytestmark = pytest.mark.real

ANSWER = 24
SCRIPT = Path(__file__).with_name("transformers_engine.py")
PEER = ROOT / ".peers" / "vllm" / "bin" / "python"


def python_for(device: str) -> str:
    """Return a Python that has torch and transformers, or skip the test."""
    if device == "cpu":
        if not PEER.exists():
            require("vllm", "to have it: make vllm")
        return str(PEER)
    if not all(importlib.util.find_spec(name) for name in ("torch", "transformers")):
        require("torch-gpu", "run the tests with a Python that has torch and transformers")
    try:
        found = ctypes.CDLL("libcuda.so.1").cuInit(0)
    except OSError as error:
        require("torch-gpu", str(error))
    if found != 0:
        require("torch-gpu", f"CUDA's driver finds no GPU: {found}")
    return sys.executable


class Engine:
    """A process with a model."""

    def __init__(self, python: str, socket: Path, name: str, device: str, block: int, layout: str) -> None:
        path = os.pathsep.join(filter(None, (str(ROOT / "python"), os.environ.get("PYTHONPATH", ""))))
        self._process = subprocess.Popen(
            [python, str(SCRIPT), str(socket), name, device, str(block), layout],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1"},
        )

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the engine has ended: {self._process.wait(10)}"
        answered: dict[str, Any] = json.loads(line)
        return answered

    def ask(self, do: str, **what: object) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **what}) + "\n")
        self._process.stdin.flush()
        return self.answer()

    def stop(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.communicate(timeout=30)
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module", params=["cpu", "cuda"])
def engines(
    request: pytest.FixtureRequest, meridian_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Engine, Engine]]:
    """Run two engines whose blocks have different sizes and layouts."""
    device: str = request.param
    python = python_for(device)
    state = tmp_path_factory.mktemp("cell")
    state.chmod(0o700)
    with contextlib.ExitStack() as undo:
        directory = Process(meridian_binary, state / "directory.log", "directory", "--state", str(state))
        undo.callback(directory.stop)
        started = []
        for name, block, layout in (("prefill", 16, "LBHNC"), ("decode", 32, "SGLANG")):
            agent = Agent(meridian_binary, state, name)
            undo.callback(agent.stop)
            order = {"SGLANG": "FLBNHD"}.get(layout, layout)
            started.append(Engine(python, agent.socket, name, device, block, order))
            undo.callback(started[-1].stop)
        for engine in started:
            assert "ready" in engine.answer()
        yield started[0], started[1]


@pytest.mark.parametrize("push", [False, True], ids=["pull", "push"])
def test_tokens_are_those_of_one_process(engines: tuple[Engine, Engine], push: bool) -> None:
    prefill, decode = engines
    chance = random.Random(int(push))
    for length in (1, 15, 16, 33, 100, 411):
        tokens = chance.choices(range(2048), k=length)
        right = prefill.ask("alone", tokens=tokens, count=ANSWER)["tokens"]
        offered = prefill.ask("prefill", tokens=tokens)
        answer = decode.ask("decode", tokens=tokens, count=ANSWER, push=push, **offered)
        assert answer.get("tokens") == right, f"wrong tokens: {answer}, not {right}"
        nothing = decode.ask(
            "decode", tokens=tokens, count=ANSWER, push=push, ticket="", first=offered["first"]
        )
        assert nothing["tokens"] != right, "a cache of zeros gives the same tokens: this test could not fail"
