"""NIXL with memory of a GPU, as one side of a measurement.

The posting side polls, as its applications do; the serving side has a thread that makes progress.
"""

import base64
import time

import gpu_side
import numpy as np
from answers import run
from nixl._api import nixl_agent, nixl_agent_config

PATIENCE = 60.0
"""Seconds that one transfer may take."""


class Nixl(gpu_side.Side):
    def start(self, request):
        self.handles = []
        posting = self.side == gpu_side.POSTING
        self.agent = nixl_agent(
            "posting" if posting else "serving",
            nixl_agent_config(enable_prog_thread=not posting, backends=["UCX"]),
        )
        for pool in self.pools.values():
            self.agent.register_memory(
                [(pool.data_ptr(), pool.nbytes, 0, "")], self.memory(pool)
            )
        return {
            "metadata": base64.b64encode(self.agent.get_agent_metadata()).decode(),
            "pools": {
                kind: [pool.data_ptr(), self.memory(pool)]
                for kind, pool in self.pools.items()
            },
        }

    @staticmethod
    def memory(pool):
        return "VRAM" if pool.is_cuda else "DRAM"

    def meet(self, request):
        remote = self.agent.add_remote_agent(
            base64.b64decode(request["other"]["metadata"])
        )
        self.remote = remote.decode() if isinstance(remote, bytes) else remote
        self.remote_pools = request["other"]["pools"]

    def prepare(self, case, local, remote):
        for handle in self.handles:
            handle.release()
        pool = self.pools[case["local"]]
        address, memory = self.remote_pools[case["remote"]]
        near = self.blocks(
            "NIXL_INIT_AGENT", case, local, pool.data_ptr(), self.memory(pool)
        )
        far = self.blocks(self.remote, case, remote, address, memory)
        index = np.arange(len(local), dtype=np.int32)
        self.transfer = self.agent.make_prepped_xfer(
            case["op"].upper(), near, index, far, index
        )
        self.handles = [self.transfer, near, far]

    def blocks(self, agent, case, order, address, memory):
        offsets = order.numpy().astype(np.uint64) * np.uint64(
            case["block"]
        ) + np.uint64(address)
        columns = [
            np.full(len(order), case["block"], np.uint64),
            np.zeros(len(order), np.uint64),
        ]
        return self.agent.prep_xfer_dlist(
            agent, np.stack([offsets, *columns], 1), memory
        )

    def move(self):
        end = time.monotonic() + PATIENCE
        state = self.agent.transfer(self.transfer)
        while state == "PROC":
            if time.monotonic() > end:
                raise TimeoutError(f"a transfer did not end within {PATIENCE:g} s")
            state = self.agent.check_xfer_state(self.transfer)
        if state != "DONE":
            raise RuntimeError(f"transfer ended as {state}")


run(Nixl())
