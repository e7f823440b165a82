"""NIXL, as one side of a measurement.

The posting side polls, as its applications do, without a progress thread. The serving side has
one for throughput and polls for latency: what was fastest where it was tried.
"""

import base64
import importlib.metadata
import time

import numpy as np
from answers import run
from nixl._api import nixl_agent, nixl_agent_config
from peer import POSTING, Peer


class Nixl(Peer):
    def version(self):
        return importlib.metadata.version("nixl")

    def start(self, request):
        self.handles = []
        name = "posting" if self.side == POSTING else "serving"
        self.agent = nixl_agent(
            name, nixl_agent_config(enable_prog_thread=request["progress_thread"], backends=["UCX"])
        )
        self.agent.register_memory([(self.pool.ctypes.data, len(self.pool), 0, "")], "DRAM")
        metadata = base64.b64encode(self.agent.get_agent_metadata()).decode()
        return {"metadata": metadata, "address": self.pool.ctypes.data}

    def meet(self, request):
        remote = self.agent.add_remote_agent(base64.b64decode(request["other"]["metadata"]))
        self.remote = remote.decode() if isinstance(remote, bytes) else remote
        self.remote_address = request["other"]["address"]

    def prepare(self, case, local, remote):
        for handle in self.handles:
            handle.release()
        count = len(local)
        columns = [np.full(count, case["block"], np.uint64), np.zeros(count, np.uint64)]
        near = self.agent.prep_xfer_dlist(
            "NIXL_INIT_AGENT", np.stack([local + np.uint64(self.pool.ctypes.data), *columns], 1), "DRAM"
        )
        far = self.agent.prep_xfer_dlist(
            self.remote, np.stack([remote + np.uint64(self.remote_address), *columns], 1), "DRAM"
        )
        index = np.arange(count, dtype=np.int32)
        self.transfer = self.agent.make_prepped_xfer(case["op"].upper(), near, index, far, index)
        self.handles = [self.transfer, near, far]

    def post(self, transfer, *notification):
        state = self.agent.transfer(transfer, *notification)
        while state == "PROC":
            state = self.agent.check_xfer_state(transfer)
        if state != "DONE":
            raise RuntimeError(f"transfer ended as {state}")

    def round(self, request):
        start = time.perf_counter()
        self.post(self.transfer)
        return {"seconds": time.perf_counter() - start}

    def latency(self, request):
        """Time writes with a notification: to local done, and until the other side has answered."""
        size, count = request["bytes"], request["count"]
        near = self.agent.get_xfer_descs([(self.pool.ctypes.data, size, 0)], "DRAM")
        far = self.agent.get_xfer_descs([(self.remote_address, size, 0)], "DRAM")
        transfer = self.agent.initialize_xfer("WRITE", near, far, self.remote, b"q")
        done, echo = [], []
        for _ in range(count):
            start = time.perf_counter_ns()
            self.post(transfer, b"q")
            done.append(time.perf_counter_ns() - start)
        for _ in range(count):
            start = time.perf_counter_ns()
            self.post(transfer, b"r")
            while not self.agent.get_new_notifs():
                pass
            echo.append(time.perf_counter_ns() - start)
        transfer.release()
        return {"done": done, "echo": echo}

    def reply(self, request):
        """Take notifications until enough came, and answer those that ask for it."""
        left = request["count"]
        while left > 0:
            for sender, messages in self.agent.get_new_notifs().items():
                for message in messages:
                    left -= 1
                    if message == b"r":
                        self.agent.send_notif(sender, b"r")


run(Nixl())
