"""Writes golden.json: batches of cache events in vLLM's own encoding, and what is in them.

    python serve/kvevents/testdata/generate.py > serve/kvevents/testdata/golden.json

Needs vLLM. The old encoding, which this vLLM does not write any more, comes from
the same fields in structs that are lists.
"""

import json

import msgspec
from vllm import __version__
from vllm.distributed.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, KVEventBatch

BLOCK = 16


class OldStored(msgspec.Struct, array_like=True, omit_defaults=True, gc=False, tag="BlockStored"):
    block_hashes: list
    parent_block_hash: int | bytes | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None = None


class OldRemoved(msgspec.Struct, array_like=True, omit_defaults=True, gc=False, tag="BlockRemoved"):
    block_hashes: list
    medium: str | None = None


class OldCleared(msgspec.Struct, array_like=True, omit_defaults=True, gc=False, tag="AllBlocksCleared"):
    pass


def stored(hashes, parent, first, *, medium="GPU", lora=None, **more):
    tokens = [first + i * 997 for i in range(BLOCK * len(hashes))]
    return BlockStored(
        block_hashes=hashes, parent_block_hash=parent, token_ids=tokens, block_size=BLOCK,
        lora_id=None if lora is None else 1, medium=medium, lora_name=lora, **more,
    )  # fmt: skip


def batches():
    low, wide = 7, (1 << 64) - 3
    digest = bytes(range(32))
    yield "one block", [stored([low], None, 1)]
    yield "a chain", [stored([low, wide, 1 << 40], None, 100), stored([9], 1 << 40, 60_000)]
    yield "hashes as bytes", [stored([digest], None, 5), stored([digest[::-1]], digest, 5)]
    yield "an adapter", [stored([3], None, 1, lora="sql", extra_keys=[("sql",)])]
    yield "a salt", [stored([3, 4], None, 1, extra_keys=[("tenant",), None])]
    yield (
        "an adapter, a salt",
        [stored([3, 4], None, 1, lora="sql", extra_keys=[("sql", "tenant"), ("sql",)])],
    )
    yield "an image", [stored([3, 4], 2, 1, extra_keys=[(("image-1", 3),), None])]
    yield "embeddings", [stored([3], 2, 1, extra_keys=[(b"\x01" * 32,)])]
    yield (
        "a sliding window",
        [
            stored(
                [3],
                None,
                1,
                group_idx=1,
                kv_cache_spec_kind="sliding_window",
                kv_cache_spec_sliding_window=128,
            )
        ],
    )
    yield (
        "elsewhere",
        [stored([3], None, 1, medium="STORAGE", locality="REMOTE", ownership="disk", session_id="s")],
    )
    yield "no medium", [stored([3], None, 1, medium=None)]
    yield "removed", [BlockRemoved(block_hashes=[low, wide], medium="GPU", group_idx=0)]
    yield "removed from memory", [BlockRemoved(block_hashes=[digest], medium="CPU")]
    yield "cleared", [AllBlocksCleared()]
    yield "nothing", []
    yield (
        "much",
        [stored([i * 31 for i in range(1, 9)], None, 0), AllBlocksCleared(), BlockRemoved([1], "GPU")],
    )
    old = [t * 3 for t in range(BLOCK)]
    yield "old form", [OldStored([low], None, old, BLOCK, None), OldRemoved([low]), OldCleared()]
    yield "old form with medium", [OldStored([digest], low, old, BLOCK, 4, "GPU"), OldRemoved([low], "CPU")]


def plain(value):
    if isinstance(value, bytes):
        return int.from_bytes(value[-8:], "big") if len(value) == 32 else value.hex()
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value


def described(event):
    fields = {f: plain(getattr(event, f)) for f in event.__struct_fields__}
    return {"type": event.__struct_config__.tag, **{k: v for k, v in fields.items() if v is not None}}


def main():
    encoder = msgspec.msgpack.Encoder()
    golden = []
    for i, (name, events) in enumerate(batches()):
        rank = i % 3 or None
        batch = KVEventBatch(ts=1_700_000_000.25 + i, events=events, data_parallel_rank=rank)
        golden.append(
            {
                "name": name,
                "ts": batch.ts,
                "rank": rank or 0,
                "events": [described(e) for e in events],
                "payload": encoder.encode(batch).hex(),
            }
        )
    lines = ",\n".join(json.dumps(batch) for batch in golden)
    print(f'{{"vllm": "{__version__}", "msgspec": "{msgspec.__version__}", "batches": [\n{lines}\n]}}')


if __name__ == "__main__":
    main()
