"""Processes of vLLM that a forker starts; see forker.py for why."""

from __future__ import annotations

import atexit
import functools
import json
import os
import select
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from installed import HOME, vllm_environment


class Forked:
    """A command of vLLM: the leader of a session of its own. It is not a child of this process."""

    def __init__(self, argv: Sequence[str], log: Path) -> None:
        request = {"argv": argv, "directory": str(log.parent), "log": str(log)}
        forker = _forker()
        assert forker.stdin and forker.stdout
        forker.stdin.write(json.dumps(request) + "\n")
        forker.stdin.flush()
        self.pid = int(forker.stdout.readline())
        try:
            self._end: int | None = os.pidfd_open(self.pid)
        except ProcessLookupError:
            self._end = None

    def running(self) -> bool:
        return not self.wait(0)

    def wait(self, seconds: float) -> bool:
        """Report whether it has ended within so many seconds."""
        if self._end is None:
            return True
        if not select.select([self._end], [], [], seconds)[0]:
            return False
        os.close(self._end)
        self._end = None
        return True

    def terminate(self) -> None:
        if self._end is None:
            return
        try:
            signal.pidfd_send_signal(self._end, signal.SIGTERM)
        except ProcessLookupError:
            return  # it has ended by itself: why, its log says


@functools.cache
def _forker() -> subprocess.Popen[str]:
    """Start the one that all servers come from. It ends with this process, whose pipe it reads."""
    forker = subprocess.Popen(
        [str(HOME / "bin" / "python"), str(Path(__file__).with_name("forker.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=vllm_environment(),
    )
    atexit.register(forker.kill)
    assert forker.stdout
    while (line := forker.stdout.readline()) != "ready\n":  # vLLM says things while it is imported
        assert line, "the process that imports vLLM has ended"
    return forker
