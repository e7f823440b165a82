"""What BudgetLogits adds to a step: prints a table, by torch alone and on the device that is named.

    python python/tests/vllm/budget_cost.py [cpu|cuda]

A step is one call of each of the newer interface's functions. `host` is the time that they take, `device`
until the device has done what they asked for; `copy` is what vLLM does itself for any processor: the logits
in 32 bits.
"""

from __future__ import annotations

import statistics
import sys
import time
from types import SimpleNamespace
from typing import Any

import torch

from meridian._thought import Terms
from meridian.vllm import budget_logits
from meridian.vllm.budget_logits import BudgetLogits

VOCABULARY, START, END = 151_936, 151_667, 151_668
LENGTH = 4096


class Tokenizer:
    """Two markers."""

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        return [{"<think>": START, "</think>": END}[text]]

    def decode(self, ids: list[int]) -> str:
        return "." if ids[0] % 7 == 0 else "word"


class Steps:
    """So many requests that think."""

    def __init__(self, requests: int, device: torch.device, entropy: bool) -> None:
        self.state = SimpleNamespace(
            device=device,
            all_token_ids=SimpleNamespace(
                gpu=torch.full((requests, LENGTH), 5, dtype=torch.int32, device=device)
            ),
            total_len=SimpleNamespace(gpu=torch.full((requests,), 9, dtype=torch.int32, device=device)),
            prompt_len=SimpleNamespace(np=torch.full((requests,), 9, dtype=torch.int32).numpy()),
        )
        self.state.all_token_ids.gpu[:, 8] = START
        model = SimpleNamespace(served_model_name="model", model="model")
        config = SimpleNamespace(
            model_config=model,
            speculative_config=None,
            reasoning_config=None,
            scheduler_config=SimpleNamespace(scheduler_cls=None),
        )
        self.logic = BudgetLogits(config, self.state)
        self.logic.set_terms(Terms(1 << 20, entropy=entropy))
        for slot in range(requests):
            self.logic.add_request(slot, SimpleNamespace(extra_args=None))
        self.rows = SimpleNamespace(idx_mapping_np=torch.arange(requests).numpy())
        self.raw = torch.randn(requests, VOCABULARY, device=device, dtype=torch.bfloat16)
        self.logits = self.raw.float()

    def copy(self) -> None:
        self.logits = torch.empty_like(self.raw, dtype=torch.float32).copy_(self.raw)

    def step(self) -> None:
        self.logic.apply_staged_writes()
        self.logic.apply(self.logits, self.rows)
        self.state.total_len.gpu += 1


def timed(work: Any, device: torch.device, times: int) -> tuple[float, float]:
    """Return the medians of what the host took, and until the device had done it, in microseconds."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    host, until = [], []
    for _ in range(times):
        wait()
        began = time.perf_counter()
        work()
        host.append(time.perf_counter() - began)
        wait()
        until.append(time.perf_counter() - began)
    return 1e6 * statistics.median(host[3:]), 1e6 * statistics.median(until[3:])


def main(device: torch.device) -> None:
    setattr(budget_logits, "tokenizer_of", lambda config: Tokenizer())  # noqa: B010
    times = 200 if device.type == "cuda" else 20
    print(f"microseconds a step, {VOCABULARY} logits a row, on {device.type}, medians of {times}")
    print(f"{'requests':>8} {'cap: host':>10} {'device':>8} {'entropy: host':>14} {'device':>8} {'copy':>8}")
    for requests in (1, 8, 64, 256) if device.type == "cuda" else (1, 8, 64):
        capped, probed = (Steps(requests, device, entropy) for entropy in (False, True))
        cap, entropy = (timed(steps.step, device, times) for steps in (capped, probed))
        assert not capped.logic.off and not probed.logic.off
        assert len(probed.logic.take_entropies()) == requests * (times - 1)
        _, copy = timed(capped.copy, device, times)
        columns = zip((requests, *cap, *entropy, copy), (8, 10, 8, 14, 8, 8), strict=True)
        print(" ".join(f"{value:>{width}.0f}" for value, width in columns))


if __name__ == "__main__":
    main(torch.device(sys.argv[1] if len(sys.argv) > 1 else "cpu"))
