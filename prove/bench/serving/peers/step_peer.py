"""Steps of an engine in Python, over the door: a JSON object a line in, one a line out."""

import json
import sys
import time

PATIENCE = 60.0


class World:
    """All requests decode, a token a step."""

    def __init__(self, socket, blocks, block_tokens, requests):
        from meridian.door import Steps
        from meridian.door._columns import Columns

        self.columns = Columns()
        self.size, self.blocks, self.next = block_tokens, blocks, 0
        self.steps = Steps(
            socket,
            f"python-{requests}",
            model="bench",
            blocks=blocks,
            block_tokens=block_tokens,
            max_running=requests,
            step_tokens=4096 * 64,
            remembers=True,
        )
        until = time.monotonic() + PATIENCE
        while not self.steps.governed and time.monotonic() < until:
            time.sleep(0.01)
            self.steps.advance()
        self.number, self.order = 1, []
        first = self.columns.step
        first.number, first.waiting, first.free_blocks = 1, requests, blocks
        self.have = []
        for i in range(requests):
            prompt = 64 + i % self.size
            first.begun.add(
                sequence=i + 1, id=f"request-{i}", prompt_tokens=prompt, tail=[0] * 64
            )
            self.have.append(prompt % self.size)
        if not self.steps.send(first) or len(come := self.steps.take(PATIENCE)) != 1:
            raise RuntimeError("the agent has not decided about the first step")
        self.order = list(come[0].order)
        first.ClearField("begun")
        first.waiting = 0
        self.sequences, self.ones = list(range(1, requests + 1)), [1] * requests

    def step(self):
        """Tell of a step, and read what was decided; return what that took."""
        self.number += 1
        n = len(self.have)
        counts, blocks = [0] * n, []
        for i in range(n):  # what an engine knows anyway: it is not measured
            self.have[i] = (self.have[i] + 1) % self.size
            if self.have[i] == 0:
                counts[i] = 1
                blocks.append(self.next)
                self.next += 1
        tokens = [1000 + (i + self.number) % 100_000 for i in range(n)]
        entropies = [1.25 + self.number % 2] * n
        began = time.perf_counter_ns()
        m, write = self.columns.step, self.columns.write
        m.number, m.running, m.took_ns = self.number, n, 10_000_000
        m.free_blocks = self.blocks - self.next
        write("sequences", self.sequences)
        write("computed", self.ones)
        write("counts", self.ones)
        write("tokens", tokens)
        write("entropies", entropies)
        write("block_counts", counts)
        write("blocks", blocks)
        sent = self.steps.send(m)
        come = self.steps.take(PATIENCE)
        if come and not come[0].order_stays:
            self.order = list(come[0].order)
        took = time.perf_counter_ns() - began
        ordered = len(self.order)
        if not sent or len(come) != 1 or come[0].step != self.number or ordered != n:
            raise RuntimeError(
                f"after step {self.number} came {len(come)} decisions, and {ordered} requests run"
            )
        return took


class Peer:
    def open(self, **about):
        import meridian.door  # noqa: F401

        self.about, self.worlds = about, {}
        return {}

    def lap(self, requests, count):
        if requests not in self.worlds:
            self.worlds[requests] = World(**self.about, requests=requests)
        world = self.worlds[requests]
        return {"ns": [world.step() for _ in range(count)]}


def main():
    peer = Peer()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(peer, request.pop("do"))(**request)
        except (ImportError, OSError, RuntimeError, TypeError, ValueError) as problem:
            answer = {"error": f"{type(problem).__name__}: {problem}"}
        print(json.dumps(answer), flush=True)


main()
