"""One side of a peer that is measured.

The Go side starts two of these, hands one's introduction to the other, and asks the posting side
for a round at a time. Contents depend on their position, as they do in Meridian's own rounds.
"""

import numpy as np
from answers import aligned

WORD = 8
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
POSTING, SERVING = 1, 2


def destination(case):
    return SERVING if case["op"] == "write" else POSTING


def offsets(case, side):
    """Where the blocks lie: dense in order, or every other block of the pool in each side's own order."""
    count = case["total"] // case["block"]
    if case["layout"] == "dense":
        return np.arange(count, dtype=np.uint64) * np.uint64(case["block"])
    order = np.random.default_rng((side, case["block"])).permutation(count)
    return order.astype(np.uint64) * np.uint64(2 * case["block"])


def contents(side, first, count):
    """The words that belong at a side's byte offsets first, first + 8, …"""
    steps = np.arange(count, dtype=np.uint64) * np.uint64(WORD)
    return (np.asarray(first, np.uint64)[..., None] + steps + np.uint64(side)) * MULTIPLIER


class Peer:
    """What both peers share. A subclass opens the library and moves the bytes."""

    def open(self, request):
        self.side = request["side"]
        self.pool = aligned(request["bytes"])
        return {"self": self.start(request), "version": self.version()}

    def load(self, request):
        self.case = case = request["case"]
        if destination(case) == self.side:
            self.pool[:] = 0
        else:
            words = self.pool.view(np.uint64)
            step = 1 << 20
            for first in range(0, len(words), step):
                part = words[first : first + step]
                part[:] = contents(self.side, first * WORD, len(part))
        if self.side == POSTING:
            self.prepare(case, offsets(case, POSTING), offsets(case, SERVING))

    def clear(self, request):
        if destination(self.case) == self.side:
            self.pool[:] = 0

    def check(self, request):
        case = self.case
        to, block = destination(case), case["block"]
        if to != self.side:
            return
        source = POSTING + SERVING - to
        blocks = self.pool.view(np.uint64).reshape(-1, block // WORD)
        froms, tos = offsets(case, source), offsets(case, to)
        step = max(1, (8 << 20) // block)
        for i in range(0, len(tos), step):
            rows = (tos[i : i + step] // np.uint64(block)).astype(np.int64)
            wanted = contents(source, froms[i : i + step], block // WORD)
            if not np.array_equal(blocks[rows], wanted):
                raise ValueError(f"wrong contents among blocks {i} to {i + len(rows) - 1}")
            if case["layout"] == "scattered" and blocks[rows + 1].any():
                raise ValueError(f"bytes behind blocks {i} to {i + len(rows) - 1} were written")

    def meet(self, request):
        pass
