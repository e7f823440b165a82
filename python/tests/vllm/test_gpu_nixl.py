"""What a hand-off by vLLM's own NixlConnector adds to the first token on a GPU, to be held against ours.

Two servers with that connector stand behind a gateway of ours, so that the way there is as long.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import pytest
from conftest import require
from gpu_first_token import FLAGS, TOKEN_BYTES, compare_first_tokens, ready, write_model
from gpu_servers import VLLM, GPUServer, Spawned, require_vllm_on_gpu, vllm_environment
from servers import Running, Server, free_port, wait_all_ready
from waiting import until

pytestmark = pytest.mark.real

BLOCK = 16
TRANSFER = {"kv_connector": "NixlConnector", "kv_role": "kv_both"}


class NixlServer(GPUServer):
    """A server whose caches NIXL carries."""

    FLAGS: ClassVar[tuple[str, ...]] = (*FLAGS.split(), "--generation-config", "vllm")

    def _with_url(self, transfer: Mapping[str, object]) -> dict[str, object]:
        return dict(transfer)

    def _run(self, arguments: Sequence[str], log: Path) -> Running:
        # Where a server tells the other of its memory.
        channel = {
            "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
            "VLLM_NIXL_SIDE_CHANNEL_PORT": str(free_port()),
        }
        return Spawned([*VLLM, *arguments], log, {**vllm_environment(), **channel})


@pytest.fixture
def pair(tmp_path: Path, meridian_binary: Path) -> Iterator[tuple[Server, Server, int]]:
    """Run a prefill server, a decode server, and a gateway before them; return them and its port."""
    require_vllm_on_gpu()
    if importlib.util.find_spec("nixl") is None:
        require("nixl-gpu", "run the tests with a Python that has NIXL beside vLLM")
    write_model(tmp_path / "model")
    with contextlib.ExitStack() as undo:
        servers = []
        for name in ("prefill", "decode"):
            log = tmp_path / f"{name}.log"
            servers.append(NixlServer(name, tmp_path / "model", log, block=BLOCK, transfer=TRANSFER))
            undo.callback(servers[-1].stop)
        wait_all_ready(*servers)
        state = undo.enter_context(tempfile.TemporaryDirectory(prefix="gateway-"))
        port, said = free_port(), tmp_path / "gateway.log"
        with said.open("w") as output:
            gateway = subprocess.Popen(
                [
                    *(str(meridian_binary), "gateway", "--state", state, "--admin", ""),
                    *("--listen", f"127.0.0.1:{port}", "--direct-tokens", "1"),
                    *("--prefill", servers[0].url, "--decode", servers[1].url),
                ],
                env={**os.environ},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        undo.callback(gateway.wait, 30)
        undo.callback(gateway.terminate)

        def serves() -> bool:
            assert gateway.poll() is None, said.read_text()[-4000:]
            return ready(port)

        until("the gateway is ready", serves, 30, said=lambda: said.read_text()[-4000:])
        try:
            yield servers[0], servers[1], port
        finally:
            for server in servers:
                print(f"==> {server.name}", server.log_tail(15), sep="\n")


def test_what_nixl_adds(pair: tuple[Server, Server, int]) -> None:
    prefill, decode, gateway = pair
    tokens = compare_first_tokens(prefill.port, gateway, "", "NixlConnector")
    came = decode.metric("vllm:nixl_bytes_transferred_sum")
    print(f"{came / 2**30:.1f} GiB came by NIXL")
    assert came > 0.9 * tokens * TOKEN_BYTES, "caches were computed where they were decoded"
