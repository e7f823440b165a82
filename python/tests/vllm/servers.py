"""vLLM servers that tests start and kill."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Protocol

from forked import Forked
from installed import HOME, require_vllm
from waiting import until

BLOCK = 32
"""Tokens in a block, unless a test says otherwise."""

START = 180.0
"""Seconds until a server must serve; on two cores it takes about thirty."""


class Running(Protocol):
    """A server's first process, which leads the others."""

    pid: int

    def running(self) -> bool: ...
    def wait(self, seconds: float) -> bool: ...
    def terminate(self) -> None: ...


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Server:
    """A `vllm serve`, with all its processes."""

    FLAGS: ClassVar[tuple[str, ...]] = (
        *("--dtype", "float32", "--max-model-len", "1024", "--max-num-seqs", "8", "--enforce-eager"),
        *("--enable-prefix-caching", "--generation-config", "vllm", "--disable-uvicorn-access-log"),
    )

    def __init__(
        self,
        name: str,
        model: Path,
        log: Path,
        *flags: str,
        block: int = BLOCK,
        transfer: Mapping[str, object] | None = None,
    ) -> None:
        """Start it, without waiting until it is ready."""
        self.name = name
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = log
        self._command: Sequence[str] = [
            *("serve", str(model), "--served-model-name", "tiny"),
            *("--host", "127.0.0.1", "--port", str(self.port), "--block-size", str(block)),
            *self.FLAGS,
            *flags,
        ]
        if transfer is not None:
            self._command = [*self._command, "--kv-transfer-config", json.dumps(self._with_url(transfer))]
        self._running: Running | None = None
        self.start()

    def _with_url(self, transfer: Mapping[str, object]) -> dict[str, object]:
        extra = transfer.get("kv_connector_extra_config", {})
        assert isinstance(extra, dict)
        return {**transfer, "kv_connector_extra_config": {**extra, "url": self.url}}

    def start(self) -> None:
        self._running = self._run(self._command, self._log)

    def _run(self, arguments: Sequence[str], log: Path) -> Running:
        require_vllm()
        return Forked([str(HOME / "bin" / "vllm"), *arguments], log)

    def wait_ready(self, seconds: float = START) -> None:
        def ready() -> bool:
            if self.healthy():
                return True
            assert self._running is not None
            assert self._running.running(), f"{self.name} ended:\n{self.log_tail()}"
            return False

        until(f"{self.name} is ready", ready, seconds, said=self.log_tail)

    def healthy(self) -> bool:
        try:
            self.get("/health")
        except (OSError, http.client.HTTPException):
            return False
        return True

    def get(self, path: str) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            text = answer.read().decode()
            if answer.status != 200:
                raise http.client.HTTPException(f"GET {path}: {answer.status} {text[:200]}")
            return text
        finally:
            connection.close()

    def version(self) -> tuple[int, ...]:
        """Return vLLM's own."""
        text: str = json.loads(self.get("/version"))["version"]
        return tuple(int(number) for number in re.findall(r"\d+", text)[:3])

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum over all series of that name, with these labels."""
        total, found = 0.0, False
        for line in self.get("/metrics").splitlines():
            match = re.match(r"([^{ ]+)(?:\{(.*)\})? (\S+)$", line)
            wanted = [f'{label}="{value}"' for label, value in labels.items()]
            if match and match[1] == name and all(pair in (match[2] or "") for pair in wanted):
                total, found = total + float(match[3]), True
        assert found, f"{self.name} has no metric {name} {labels}"
        return total

    def kill(self) -> None:
        """End all its processes as a crash of the machine would."""
        self._end()

    def stop(self) -> None:
        if self._running is not None:
            self._running.terminate()
            self._running.wait(30)
        self._end()

    def _end(self) -> None:
        if self._running is None:
            return
        _kill_group(self._running.pid)  # it is the leader of its session
        assert self._running.wait(30), f"{self.name} cannot be killed"
        self._running = None

    def alive(self) -> bool:
        return self._running is not None and self._running.running()

    def log_text(self) -> str:
        return self._log.read_text(errors="replace")

    def log_tail(self, lines: int = 60) -> str:
        return "\n".join(self.log_text().splitlines()[-lines:])


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def wait_all_ready(*servers: Server) -> None:
    """Wait for servers that start at the same time."""
    for server in servers:
        server.wait_ready()
