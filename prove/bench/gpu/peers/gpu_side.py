"""One side of a peer that moves memory of a GPU.

The Go side starts two of these, hands one's introduction to the other, and asks the posting side for
a round at a time. Each has a pool on the GPU and one on the host. What lies in a pool depends on the
side and on the position, so that a block in the wrong place is seen.
"""

import time

import numpy as np
import torch

WORD = 8
MULTIPLIER = 0x1E3779B97F4A7C15
POSTING, SERVING = 1, 2


def order(case, side):
    """The blocks of a side, in its own order."""
    chosen = np.random.default_rng((side, case["block"])).permutation(
        case["total"] // case["block"]
    )
    return torch.from_numpy(chosen)


class Side:
    """What peers share. A subclass opens the library and moves the bytes."""

    def open(self, request):
        self.side, self.device = request["side"], request["device"]
        self.other_side = POSTING + SERVING - self.side
        words = request["bytes"] // WORD
        self.pools = {
            "gpu": torch.zeros(words, dtype=torch.int64, device=self.device),
            "host": torch.zeros(words, dtype=torch.int64),
        }
        return {"self": self.start(request)}

    def kind(self, case, side):
        return case["local"] if side == POSTING else case["remote"]

    def contents(self, side, words, device):
        """The words that belong at these positions of a side's pool."""
        return (words.to(device) * WORD + side) * MULTIPLIER

    def load(self, request):
        self.case = case = request["case"]
        self.to = SERVING if case["op"] == "write" else POSTING
        pool = self.pools[self.kind(case, self.side)]
        if self.to == self.side:
            pool.zero_()
        else:
            pool.copy_(self.contents(self.side, torch.arange(len(pool)), pool.device))
        self.wait()
        if self.side == POSTING:
            self.prepare(case, order(case, POSTING), order(case, SERVING))

    def wait(self):
        if self.device != "cpu":
            torch.cuda.synchronize()

    def round(self, request):
        self.wait()
        start = time.perf_counter()
        self.move()
        return {"seconds": time.perf_counter() - start}

    def check(self, request):
        """Compare every byte of the destination."""
        if self.to != self.side:
            return
        case, words = self.case, self.case["block"] // WORD
        pool = self.pools[self.kind(case, self.side)]
        held = pool[: case["total"] // WORD].view(-1, words)[
            order(case, self.side).to(pool.device)
        ]
        first = order(case, self.other_side) * words
        wanted = self.contents(
            self.other_side, first[:, None] + torch.arange(words), pool.device
        )
        wrong = int((held != wanted).any(dim=1).sum())
        if wrong:
            raise ValueError(f"{wrong} of {len(held)} blocks are wrong")
