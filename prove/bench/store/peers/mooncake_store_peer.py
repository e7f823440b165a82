"""A client of Mooncake's store over TCP: the one that keeps the objects, or the one that asks.

The asking process keeps nothing, so that every object crosses the network. A round is timed here,
operation by operation: the pipe to the Go side is not measured.
"""

import importlib.metadata
import threading
import time

import numpy as np
from answers import aligned, run
from mooncake.store import MooncakeDistributedStore

WORD = 8
FILLER = 1 << 20


class Client:
    def open(self, request):
        self.store = MooncakeDistributedStore()
        status = self.store.setup(
            request["name"], "P2PHANDSHAKE", request["segment"], request["buffer"], "tcp", "", request["master"]
        )
        if status:
            raise RuntimeError(f"setup ended with {status}")
        if request["memory"]:
            self.memory = aligned(request["memory"])
            self.base = self.memory.ctypes.data
            if status := self.store.register_buffer(self.base, len(self.memory)):
                raise RuntimeError(f"register_buffer ended with {status}")
        return {"version": importlib.metadata.version("mooncake-transfer-engine-non-cuda")}

    def touch(self, request):
        """Write to most of what is kept elsewhere once, so that its pages are mapped."""
        size = min(FILLER, len(self.memory))
        for i in range(int(request["bytes"] * 0.8) // size):
            if self.store.put_from(f"touch/{i}", self.base, size):
                break
        self.remove_all()

    def remove_all(self):
        # By force: whatever was got is leased for a while.
        self.store.remove_all(True)

    def key(self, round, i):
        return f"bench/{self.row}/{round}/{i}"

    def contents(self, i):
        words = self.case["object"] // WORD
        return (np.uint64(i + 1) << np.uint64(40)) + np.arange(words, dtype=np.uint64) * np.uint64(WORD)

    def part(self, i):
        size = self.case["object"]
        return self.memory[i * size : (i + 1) * size].view(np.uint64)

    def load(self, request):
        self.case, self.row = request["case"], request["row"]
        for i in range(self.case["count"]):
            self.part(i)[:] = self.contents(i)
        if self.case["op"] == "get":
            self.everybody(self.put, 0)

    def put(self, round, i):
        size = self.case["object"]
        if status := self.store.put_from(self.key(round, i), self.base + i * size, size):
            raise RuntimeError(f"put_from ended with {status}")

    def get(self, round, i):
        size = self.case["object"]
        if (got := self.store.get_into(self.key(0, i), self.base + i * size, size)) != size:
            raise RuntimeError(f"get_into ended with {got}")

    def everybody(self, do, round):
        """Every object once, dealt to as many threads as there are clients."""
        count, clients = self.case["count"], self.case["clients"]
        took, problems = [0] * count, []

        def share(client):
            try:
                before = time.perf_counter_ns()
                for i in range(client, count, clients):
                    do(round, i)
                    now = time.perf_counter_ns()
                    took[i] = now - before
                    before = now
            except Exception as e:
                problems.append(e)

        threads = [threading.Thread(target=share, args=(client,)) for client in range(clients)]
        start = time.perf_counter_ns()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if problems:
            raise problems[0]
        return {"ns": time.perf_counter_ns() - start, "each_ns": took}

    def round(self, request):
        if self.case["op"] == "get":
            return self.everybody(self.get, 0)
        lap = self.everybody(self.put, request["round"])
        self.remove_all()
        return lap

    def verify(self, request):
        if self.case["op"] == "put":
            self.everybody(self.put, 0)
        self.memory[:] = 0
        self.everybody(self.get, 0)
        for i in range(self.case["count"]):
            if not np.array_equal(self.part(i), self.contents(i)):
                raise ValueError(f"wrong contents in object {i}")

    def unload(self, request):
        self.remove_all()


run(Client())
