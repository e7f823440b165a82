"""vLLM's own publisher of cache events, told by lines of standard input what to do.

    publish N   publish N batches
    stop        end

Prints its two ports, then a line for every line it has done.
"""

import socket
import sys

from vllm.distributed.kv_events import BlockStored, KVEventBatch, ZmqEventPublisher


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def batch(number: int) -> KVEventBatch:
    stored = BlockStored(
        block_hashes=[number + 1], parent_block_hash=number or None, token_ids=[number] * 16, block_size=16,
        lora_id=None, medium="GPU", lora_name=None,
    )  # fmt: skip
    return KVEventBatch(ts=float(number), events=[stored])


def main() -> None:
    ports = free_port(), free_port()
    publisher = ZmqEventPublisher(
        0,
        endpoint=f"tcp://*:{ports[0]}",
        replay_endpoint=f"tcp://*:{ports[1]}",
        topic="kv-events",
        buffer_steps=5000,
    )
    print(*ports, flush=True)
    published = 0
    for line in sys.stdin:
        word, _, count = line.partition(" ")
        if word.strip() == "stop":
            break
        for _ in range(int(count)):
            publisher.publish(batch(published))
            published += 1
        publisher._event_queue.join()
        print("done", flush=True)
    publisher.shutdown()


if __name__ == "__main__":
    main()
