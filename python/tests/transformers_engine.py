"""An engine of Hugging Face's transformers: one process, asked line by line, in a Python that has torch.

    transformers_engine.py SOCKET NAME DEVICE BLOCK_TOKENS LAYOUT

The model computes in transformers' own cache. A prompt's cache is written into blocks that are lent, and
read from there where it is decoded.
"""

from __future__ import annotations

import base64
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from meridian.door import (
    Accept,
    Control,
    Door,
    EventKind,
    Layer,
    Offer,
    Publication,
    Rank,
    Scope,
    new_transfer,
    transfer_of,
)
from meridian.vllm.gpu import exported, load_driver
from meridian.vllm.memory import Region

LAYERS = {"cpu": 2, "cuda": 12}
HEADS, KV_HEADS, HEAD = 16, 4, 64
BLOCKS = 256
AXES = "LBHNFD"
PATIENCE = 30.0


def model_on(device: str) -> Any:
    """Return a model of random weights, the same in every process; large ones, so that it chooses sharply."""
    torch.manual_seed(14)
    config = LlamaConfig(
        vocab_size=2048,
        hidden_size=HEADS * HEAD,
        intermediate_size=2048,
        num_hidden_layers=LAYERS[device],
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD,
        initializer_range=0.08,
    )
    return LlamaForCausalLM(config).to(torch.bfloat16).to(device).eval()


class Engine:
    """The model, its blocks, and the doors of its scheduler and its one rank."""

    def __init__(self, socket: str, name: str, device: str, block_tokens: int, layout: str) -> None:
        self._device, self._block_tokens, self._layers = device, block_tokens, LAYERS[device]
        self._model = model_on(device)
        extents = {"L": self._layers, "B": BLOCKS, "H": KV_HEADS, "N": block_tokens, "F": 2, "D": HEAD}
        order = layout.replace("C", "FD")
        self._memory = torch.zeros([extents[axis] for axis in order], dtype=torch.bfloat16, device=device)
        self._blocks = self._memory.permute([order.index(axis) for axis in AXES])
        self._control = Door(socket, name, control=Control(role="both", model="m"))
        self._rank = Door(socket, name, rank=Rank(0, 1))
        for door in (self._control, self._rank):
            door.open()
        self._lend()
        cached = [Layer(kv_heads=KV_HEADS, head_dim=HEAD)] * self._layers
        self._control.publish(
            Publication(
                "bf16", cached, block_tokens, BLOCKS, layout=layout, packing="plain", scope=Scope(model="m")
            )
        )
        self._control.wait_serving()

    def _lend(self) -> None:
        address, size = self._memory.data_ptr(), self._memory.numel() * self._memory.element_size()
        if self._device == "cpu":
            self._rank.lend_borrowed(address, size)
            return
        ((memory, size),) = exported([Region(address, size)], load_driver())
        self._rank.lend_gpu(memory, size)

    def _table(self, tokens: int) -> list[int]:
        """Return blocks in an order that no identity survives."""
        count = -(-tokens // self._block_tokens)
        return [(7 * block + 3) % BLOCKS for block in range(count)]

    def _places(self, count: int) -> tuple[Any, Any]:
        table = self._table(count)
        places = range(count)
        blocks = [table[place // self._block_tokens] for place in places]
        offsets = [place % self._block_tokens for place in places]
        return torch.tensor(blocks, device=self._device), torch.tensor(offsets, device=self._device)

    def _compute(self, tokens: list[int], cache: Any) -> int:
        with torch.inference_mode():
            logits = self._model(torch.tensor([tokens], device=self._device), past_key_values=cache).logits
        return int(logits[0, -1].argmax())

    def _generate(self, first: int, cache: Any, count: int) -> list[int]:
        found = [first]
        while len(found) < count:
            found.append(self._compute(found[-1:], cache))
        return found

    def alone(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Compute a prompt and generate behind it, in this process."""
        cache = DynamicCache()
        first = self._compute(asked["tokens"], cache)
        return {"tokens": self._generate(first, cache, asked["count"])}

    def prefill(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Compute a prompt and offer it."""
        tokens, cache = asked["tokens"], DynamicCache()
        first = self._compute(tokens, cache)
        blocks, offsets = self._places(len(tokens))
        for number, layer in enumerate(cache.layers):
            self._blocks[number][blocks, :, offsets, 0] = layer.keys[0].transpose(0, 1)
            self._blocks[number][blocks, :, offsets, 1] = layer.values[0].transpose(0, 1)
        if self._device != "cpu":
            torch.cuda.synchronize()
        offer = Offer(new_transfer(), tokens, [self._table(len(tokens))], layers=self._layers)
        return {"ticket": base64.b64encode(self._control.offer(offer)).decode(), "first": first}

    def _until_ready(self, transfer: bytes) -> None:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            for event in self._control.poll_events(1.0):
                if event.transfer == transfer and event.kind is EventKind.READY:
                    return
                if event.transfer == transfer:
                    raise RuntimeError(f"the cache did not come: {event}")
        raise RuntimeError("the cache did not come")

    def decode(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Take a prompt's cache, unless none is to be taken, and generate behind it."""
        tokens = asked["tokens"]
        self._memory.zero_()
        if self._device != "cpu":
            torch.cuda.synchronize()
        if asked["ticket"]:
            ticket = base64.b64decode(asked["ticket"])
            self._control.accept(Accept(ticket, tokens, [self._table(len(tokens))], push=asked["push"]))
            self._until_ready(transfer_of(ticket))
        cache, (blocks, offsets) = DynamicCache(), self._places(len(tokens))
        for number in range(self._layers):
            keys, values = (
                self._blocks[number][blocks, :, offsets, part].transpose(0, 1)[None].contiguous()
                for part in (0, 1)
            )
            cache.update(keys, values, number)
        return {"tokens": self._generate(asked["first"], cache, asked["count"])}

    def close(self) -> None:
        for door in (self._rank, self._control):
            door.close()


def main() -> None:
    socket, name, device, block_tokens, layout = sys.argv[1:]
    engine = Engine(socket, name, device, int(block_tokens), layout)
    print(json.dumps({"ready": torch.__version__}), flush=True)
    does: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
        "alone": engine.alone,
        "prefill": engine.prefill,
        "decode": engine.decode,
    }
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(does[asked.pop("do")](asked)), flush=True)
    engine.close()


if __name__ == "__main__":
    main()
