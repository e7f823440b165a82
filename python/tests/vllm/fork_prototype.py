"""EAT in vLLM, tried: a scheduler forks a context by a request of its own, which no client hears of.

    VLLM_ENABLE_V1_MULTIPROCESSING=0 .peers/vllm/bin/python python/tests/vllm/fork_prototype.py

A fork is the context so far with the end of the thought behind it, and one token; its blocks are found in the
prefix cache, but for the last. Prints whether the others' tokens stay the same, how many steps it takes, and
how far the entropies are from those of the same prompts asked from outside. It is no part of the package: a
fork must also be kept from connectors, and from making others wait.
"""

from __future__ import annotations

import itertools
import math
import tempfile
from pathlib import Path
from typing import Any

import fork_prototype as shared
import tiny_model
import torch
from vllm.entrypoints.llm import LLM
from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request
from vllm.v1.sample.logits_processor.interface import LogitsProcessor, MoveDirectionality

from meridian.vllm.entropies import entropies

START, END = (len(tiny_model.SPECIAL) + 256 + i for i in range(2))
EVERY = 16
NAME = "meridian-fork-"

forking = False
steps = 0
found: dict[tuple[int, ...], float] = {}
"""Entropies after the end of the thought, by the context."""


class Probe(LogitsProcessor):  # type: ignore[misc]
    """Measures the rows of forks."""

    def __init__(self, *_: Any) -> None:
        self._prompts: dict[int, list[int] | None] = {}

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: Any) -> None:
        if not batch_update:
            return
        for row in batch_update.removed:
            self._prompts.pop(row, None)
        for row, params, prompt, _ in batch_update.added:
            self._prompts[row] = prompt if (params.extra_args or {}).get("fork") else None
        for a, b, direction in batch_update.moved:
            first, second = self._prompts.pop(a, None), self._prompts.pop(b, None)
            self._prompts[b] = first
            if direction == MoveDirectionality.SWAP:
                self._prompts[a] = second

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, prompt in self._prompts.items():
            if prompt is not None and row < len(logits):
                shared.found[tuple(prompt)] = entropies(logits, [row]).tolist()[0]
        return logits


class Forking(Scheduler):  # type: ignore[misc]
    """Forks every thought at every sixteenth token."""

    _numbers = itertools.count()

    def schedule(self, *arguments: Any, **more: Any) -> Any:
        shared.steps += 1
        return super().schedule(*arguments, **more)

    def update_from_output(self, *arguments: Any) -> Any:
        outputs = super().update_from_output(*arguments)
        for request in list(self.running):
            said = request.output_token_ids
            ours = request.request_id.startswith(NAME)
            if shared.forking and not ours and said and len(said) % EVERY == 0 and END not in said:
                self.add_request(self._fork(request))
        for each in outputs.values():
            each.outputs = [output for output in each.outputs if not output.request_id.startswith(NAME)]
        return outputs

    def _fork(self, request: Any) -> Any:
        return Request(
            request_id=f"{NAME}{next(self._numbers)}",
            prompt_token_ids=[*request.all_token_ids, END],
            sampling_params=SamplingParams(max_tokens=1, temperature=0, extra_args={"fork": 1}),
            pooling_params=None,
            client_index=request.client_index,
            block_hasher=request._block_hasher,
        )


def main(directory: str) -> None:
    tiny_model.write(Path(directory))
    small: dict[str, Any] = {"dtype": "float32", "max_model_len": 1024, "max_num_seqs": 8, "block_size": 32}
    llm = LLM(
        directory,
        **small,
        max_logprobs=-1,
        enforce_eager=True,
        enable_prefix_caching=True,
        scheduler_cls="fork_prototype.Forking",
        logits_processors=["fork_prototype:Probe"],
    )
    texts = [[tiny_model.TEXT[(31 * n + 7 * i) % 256] for i in range(100 + n)] for n in range(6)]
    prompts = [{"prompt_token_ids": [*text, START]} for text in texts]
    greedy = SamplingParams(max_tokens=128, temperature=0, ignore_eos=True)

    def answers(forking: bool) -> tuple[list[list[int]], int]:
        llm.reset_prefix_cache()
        shared.forking, shared.steps = forking, 0
        said = [list(each.outputs[0].token_ids) for each in llm.generate(prompts, greedy, use_tqdm=False)]
        shared.forking = False
        return said, shared.steps

    (alone, alone_steps), (beside, beside_steps) = answers(False), answers(True)
    forks = dict(shared.found)
    worst = 0.0
    whole = SamplingParams(max_tokens=1, temperature=0, logprobs=-1)
    for prompt, nats in forks.items():
        (answer,) = llm.generate([{"prompt_token_ids": list(prompt)}], whole, use_tqdm=False)
        logprobs = [each.logprob for each in answer.outputs[0].logprobs[0].values()]
        worst = max(worst, abs(nats + sum(math.exp(p) * p for p in logprobs if p > -80)))
    same = "the same" if alone == beside else "DIFFERENT"
    print(f"{len(forks)} forks of {len(prompts)} thoughts; tokens are {same};")
    print(f"{alone_steps} steps without, {beside_steps} with; entropies within {worst:.1e} nats")
    assert forks and alone == beside and worst < 1e-4


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(made)
