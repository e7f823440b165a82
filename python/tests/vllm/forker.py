"""Forks vLLM's commands from a process that has vLLM imported. It runs in vLLM's own Python.

To import vLLM takes a core twenty seconds, and `vllm serve` does it twice: on a CPU its
engine is spawned. Tests that start dozens of servers would do little else. What is forked
runs vLLM's own `main` with its own arguments, directory and session; only its engine is
forked, too, which is safe while OMP_NUM_THREADS is 1.

One line in, {"argv", "directory", "log"}, is one line out: the process's id.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import signal
import sys
from typing import Any

USED_BY_SERVERS = [
    "vllm.entrypoints.cli.main",
    "vllm.entrypoints.cli.serve",
    "vllm.entrypoints.cli.benchmark.main",
    "vllm.entrypoints.openai.api_server",
    "vllm.v1.engine.async_llm",
    "vllm.v1.engine.core",
    "vllm.v1.worker.cpu_worker",
    "vllm.v1.worker.cpu_model_runner",
    "vllm.v1.attention.backends.cpu_attn",
    "vllm.distributed.kv_transfer.kv_connector.factory",
    "vllm.model_executor.models.llama",
]
"""What servers import sooner or later. Versions differ: what is missing is not needed."""


def main() -> None:
    for name in USED_BY_SERVERS:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            continue
    fork_what_would_be_spawned()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps; who waits has a pidfd
    print("ready", flush=True)
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        child = os.fork()
        if child == 0:
            become(request)
        print(child, flush=True)


def fork_what_would_be_spawned() -> None:
    known = multiprocessing.get_context

    def get_context(method: str | None = None) -> Any:
        return known("fork" if method == "spawn" else method)

    multiprocessing.get_context = get_context


def become(request: dict[str, Any]) -> None:
    """Run the command in this process, and end it."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDONLY)
    log = os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.chdir(request["directory"])
    sys.argv = request["argv"]
    status: object = 1
    try:
        from vllm.entrypoints.cli.main import main as vllm_main

        status = vllm_main()
    except SystemExit as ended:
        status = ended.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status if isinstance(status, int) else int(status is not None))


if __name__ == "__main__":
    main()
