"""Processes of a cell that tests start and stop."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from waiting import until

PATIENCE = 60.0
"""How long a test waits for anything, in seconds."""


class Process:
    """A command of the Go program that says when it is ready."""

    def __init__(
        self, binary: Path, log: Path, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> None:
        self._command = [str(binary), *arguments]
        self._environment = {**os.environ, **(environment or {})}
        self._log = log
        self._running: subprocess.Popen[str] | None = None
        self.ready = ""
        """The line that says so."""
        self.start()

    def start(self) -> None:
        """Start the process, and wait until it is ready."""
        with self._log.open("a") as log:
            self._running = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=log, text=True, env=self._environment
            )
        self.ready = _first_line(self._running.stdout)
        assert "ready" in self.ready, f"{' '.join(self._command)}: {self.ready!r}\n{self._log.read_text()}"

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Let the process stand still for a while, as one that hangs does."""
        assert self._running is not None
        process = self._running
        process.send_signal(signal.SIGSTOP)
        try:
            until(
                "it stands still",
                lambda: all(_state(t) == "T" for t in Path(f"/proc/{process.pid}/task").iterdir()),
            )
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End the process as a crash would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End the process as people do."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self._running is None:
            return
        self._running.send_signal(number)
        try:
            self._running.wait(PATIENCE)
        finally:
            self._running.kill()
            self._running.communicate()
            self._running = None


def _state(thread: Path) -> str:
    return thread.joinpath("stat").read_text().rpartition(")")[2].split()[0]


def _first_line(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline()


class Agent(Process):
    """An agent with an engine door."""

    def __init__(
        self,
        binary: Path,
        state: Path,
        name: str,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        state.mkdir(mode=0o700, exist_ok=True)
        self.socket = state / f"door-{name}.sock"
        super().__init__(
            binary,
            state / f"{name}.log",
            *("agent", "--state", str(state), "--name", name, "--listen", "127.0.0.1:0", "--metrics", ""),
            *arguments,
            environment=environment,
        )


@contextlib.contextmanager
def owner(binary: Path, state: Path, bytes: int = 64 << 20, **settings: str) -> Iterator[Agent]:
    """Run an agent that is the only owner of a cell's objects, and lets others map them, unless the
    environment's further settings say otherwise."""
    state.mkdir(mode=0o700, exist_ok=True)
    directory = Process(binary, state / "directory.log", "directory", "--state", str(state))
    try:
        environment = {
            "MERIDIAN_STORE_ENABLED": "true",
            "MERIDIAN_STORE_BYTES": str(bytes),
            "MERIDIAN_STORE_DIRECT_MAP": "true",
            **settings,
        }
        agent = Agent(binary, state, "n", environment=environment)
        try:
            yield agent
        finally:
            agent.stop()
    finally:
        directory.stop()


def open_descriptors() -> int:
    """Return how many descriptors this process has open."""
    return len(os.listdir("/proc/self/fd"))
