"""Mooncake's transfer engine over TCP, as one side of a measurement.

The two sides find each other without a metadata server.
"""

import importlib.metadata
import os
import time

from answers import run
from mooncake.engine import TransferEngine
from peer import Peer

# Fewer blocks than the queues that the environment asks for can hold: one call that
# overflows them breaks the engine for good.
BATCH = 32768


class Mooncake(Peer):
    def version(self):
        return importlib.metadata.version("mooncake-transfer-engine-non-cuda")

    def start(self, request):
        self.engine = TransferEngine()
        if self.engine.initialize(f"127.0.0.1:{20000 + os.getpid() % 20000}", "P2PHANDSHAKE", "tcp", ""):
            raise RuntimeError("the engine does not start")
        if self.engine.register_memory(self.pool.ctypes.data, len(self.pool)):
            raise RuntimeError("the pool cannot be registered")
        return {"session": f"127.0.0.1:{self.engine.get_rpc_port()}", "address": self.pool.ctypes.data}

    def meet(self, request):
        self.other = request["other"]

    def prepare(self, case, local, remote):
        near = (local + self.pool.ctypes.data).tolist()
        far = (remote + self.other["address"]).tolist()
        lengths = [case["block"]] * len(near)
        self.batches = [
            (near[i : i + BATCH], far[i : i + BATCH], lengths[i : i + BATCH])
            for i in range(0, len(near), BATCH)
        ]
        write = case["op"] == "write"
        self.move = self.engine.batch_transfer_sync_write if write else self.engine.batch_transfer_sync_read

    def round(self, request):
        start = time.perf_counter()
        for near, far, lengths in self.batches:
            if status := self.move(self.other["session"], near, far, lengths):
                raise RuntimeError(f"batch ended with {status}")
        return {"seconds": time.perf_counter() - start}


run(Mooncake())
