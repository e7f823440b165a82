"""An engine's work beside transfers: products of matrices, one after the other."""

import time

import torch
from answers import run


class Matmul:
    def open(self, request):
        self.size, self.cuda = request["size"], request["device"] != "cpu"
        self.a, self.b = (
            torch.randn(
                self.size, self.size, device=request["device"], dtype=torch.bfloat16
            )
            for _ in range(2)
        )
        self.out = torch.empty_like(self.a)
        self.rate({"seconds": 0.5})  # the first ones are slower

    def rate(self, request):
        """Return how much is computed in so many seconds, in TFLOP/s."""
        count, start = 0, time.perf_counter()
        while (took := time.perf_counter() - start) < request["seconds"]:
            for _ in range(4):
                torch.mm(self.a, self.b, out=self.out)
            count += 4
            if self.cuda:
                torch.cuda.current_stream().synchronize()
        return {"tflops": 2 * self.size**3 * count / took / 1e12}


run(Matmul())
