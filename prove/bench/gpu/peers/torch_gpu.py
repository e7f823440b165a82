"""torch's own way between two processes, as one side of a measurement.

A tensor is shared as torch.multiprocessing does it, by CUDA IPC; the posting side gathers blocks with
index_select and scatters them with index_copy_, whichever side they lie on.
"""

import base64
import pickle
from multiprocessing.reduction import ForkingPickler

import gpu_side
import torch
import torch.multiprocessing
from answers import run

torch.multiprocessing.set_sharing_strategy("file_system")  # no descriptors pass here


class Torch(gpu_side.Side):
    def start(self, request):
        return {
            "pool": base64.b64encode(
                bytes(ForkingPickler.dumps(self.pools["gpu"]))
            ).decode()
        }

    def meet(self, request):
        self.remote = pickle.loads(base64.b64decode(request["other"]["pool"]))

    def prepare(self, case, local, remote):
        def rows(pool):
            return pool[: case["total"] // gpu_side.WORD].view(
                -1, case["block"] // gpu_side.WORD
            )

        near = rows(self.pools["gpu"]), local.to(self.device)
        far = rows(self.remote), remote.to(self.device)
        self.source, self.target = (near, far) if case["op"] == "write" else (far, near)
        self.staging = torch.empty_like(self.source[0])

    def move(self):
        torch.index_select(self.source[0], 0, self.source[1], out=self.staging)
        self.target[0].index_copy_(0, self.target[1], self.staging)
        self.wait()


run(Torch())
