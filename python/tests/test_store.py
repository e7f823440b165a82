"""The object cache, against a real agent that keeps objects."""

from __future__ import annotations

import asyncio
import mmap
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import PATIENCE, Agent, owner
from waiting import auntil, unread

from meridian.arena import Arena, Gone
from meridian.door import DoorError
from meridian.store import (
    AsyncNanoKVCache,
    Exists,
    Full,
    Missing,
    NanoKVCache,
    NotReady,
    ObjMeta,
    Overloaded,
    Stale,
    StoreError,
    TooLarge,
    TooSmall,
    WritePlan,
    _cache_asyncio,
    _errors,
    _link,
)

HEAP = 64 << 20
SIZES = [1, 4096, (16 << 10) + 1, (64 << 10) + 1, (256 << 10) + 1, 3_000_001]


def pattern(size: int) -> bytes:
    return bytes(i * 131 >> 3 & 0xFF for i in range(min(size, 9973))) * (size // 9973 + 1)


@pytest.fixture(scope="module")
def door(meridian_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The door of an agent that is the only owner, and lets others map what it keeps."""
    with owner(meridian_binary, tmp_path_factory.mktemp("s") / "state", HEAP) as agent:
        yield agent.socket


@pytest.fixture
def cache(door: Path, request: pytest.FixtureRequest) -> Iterator[NanoKVCache]:
    with NanoKVCache(0, socket=door, tenant=request.node.name) as opened:
        yield opened


def test_an_owner_that_is_overloaded_is_no_key_that_exists() -> None:
    error = _errors.error_of(DoorError("busy", "store: the owner is overloaded", "try again"), "put 'k'")
    assert isinstance(error, Overloaded) and not isinstance(error, Exists)


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_an_object_comes_back(door: Path, size: int, direct: bool) -> None:
    with NanoKVCache(0, socket=door, tenant=f"back {size} {direct}", direct=direct) as cache:
        assert all((link.arena is not None) == direct for link in cache._links)
        comes_back(cache, size)


def comes_back(cache: NanoKVCache, size: int) -> None:
    value = pattern(size)[:size]
    cache.put("key", value)
    with pytest.raises(Exists, match="key"):
        cache.put("key", value)
    assert cache.get("key") == value
    dst = bytearray(size)
    assert cache.get("key", dst=dst) is dst
    assert dst == value
    assert cache.get_into("key", large := bytearray(size + 100)) == size
    assert large[:size] == value
    if size > 1:
        with pytest.raises(TooSmall) as caught:
            cache.get_into("key", bytearray(size - 1))
        assert caught.value.size == size
    with pytest.raises(StoreError, match="dst"):
        cache.get("key", dst=bytearray(size + 1))
    cache.remove("key")
    with pytest.raises(Missing):
        cache.get("key")
    with pytest.raises(KeyError):
        cache.remove("key")


def test_objects_are_written_and_read_where_they_lie(door: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent is asked for room and to commit, and for no copy."""
    asked: list[str] = []
    ask = _link.Link.ask

    def count(link: _link.Link, message: Any, *rest: Any) -> Any:
        asked.append(message.WhichOneof("what"))
        return ask(link, message, *rest)

    monkeypatch.setattr(_link.Link, "ask", count)
    value = pattern(300_000)[:300_000]
    with NanoKVCache(0, socket=door, tenant="direct", direct=True) as cache:
        cache.put("key", value)
        assert cache.get("key") == value
        cache.open_for_write("pieces", len(value))
        cache.write("pieces", 100, value[100:])
        cache.write("pieces", 0, value[:100])
        cache.commit("pieces")
        cache.put("small", value[:5000])
        assert cache.get("small", dst=bytearray(5000)) == value[:5000]
        wanted = ["map", "stats", "open", "commit", "locate", "open", "commit", "put", "locate"]
        assert asked == wanted
        with NanoKVCache(0, socket=door, tenant="direct") as other:
            assert other.get_many(["key", "pieces"]) == [value, value]
        monkeypatch.setattr(NanoKVCache, "_fill", lambda *_: False)  # as where another owner has the room
        cache.put("elsewhere", value)
        assert asked[-3:] == ["open", "write", "commit"]
        assert cache.get("elsewhere") == value


def test_a_writer_whose_room_was_taken_back(door: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: Any) -> None:
        raise Gone("taken back")

    with NanoKVCache(0, socket=door, tenant="late", direct=True) as cache:
        monkeypatch.setattr(Arena, "fill", gone)
        with pytest.raises(Stale, match="taken back"):
            cache.put("key", bytes(300_000))
        monkeypatch.undo()
        cache.put("key", bytes(300_000))  # it was given back


def test_tenants_do_not_see_each_other(door: Path) -> None:
    with NanoKVCache(0, socket=door, tenant="a") as a, NanoKVCache(0, socket=door, tenant="b") as b:
        a.put("mine", b"value")
        assert b.has(["mine"]) == [False]
        b.put("mine", b"other")
        assert (a.get("mine"), b.get("mine")) == (b"value", b"other")
        assert a.keys() == [(b"mine", 5)]


def test_batches(cache: NanoKVCache) -> None:
    items = [(f"k{i}", pattern(1 + 701 * i)[: 1 + 701 * i]) for i in range(300)]
    assert cache.put_many(items) == [None] * len(items)
    assert isinstance(cache.put_many(items[:2])[1], Exists)
    keys = [key for key, _ in items]
    assert cache.get_many(keys) == [value for _, value in items]
    cache.remove("k7")
    found = cache.get_many(keys[:10])
    assert isinstance(found[7], Missing)
    assert [found[i] for i in range(10) if i != 7] == [items[i][1] for i in range(10) if i != 7]
    assert cache.longest_run(keys) == 7
    assert cache.longest_run([]) == 0
    assert cache.longest_run(keys[8:]) == len(keys) - 8
    assert sorted(cache.keys("k1")) == sorted((k.encode(), len(v)) for k, v in items if k.startswith("k1"))
    removed = cache.remove_many(keys)
    assert [i for i, error in enumerate(removed) if error is not None] == [7]


def test_batches_into_buffers(cache: NanoKVCache, door: Path) -> None:
    """Each into memory of its own, in more requests than one; what is wrong with one is no other's."""
    sizes = [1 + 701 * i for i in range(300)]
    cache.put_many([(f"k{n}", pattern(n)[:n]) for n in sizes])
    cache.remove(f"k{sizes[7]}")
    buffers = [bytearray(n + 3) for n in sizes]
    buffers[9] = bytearray(sizes[9] - 1)
    found = cache.get_into_many([f"k{n}" for n in sizes], buffers)
    missing, small = found[7], found[9]
    assert isinstance(missing, Missing) and isinstance(small, TooSmall) and small.size == sizes[9]
    assert [i for i, n in enumerate(sizes) if found[i] != n] == [7, 9]
    right = [i for i in range(300) if i not in (7, 9)]
    assert all(buffers[i][: sizes[i]] == pattern(sizes[i])[: sizes[i]] for i in right)
    assert all(buffers[i][sizes[i] :] == b"\0\0\0" for i in right)
    assert cache.get_into_many([], []) == []
    with pytest.raises(ValueError, match="2 keys, and memory for 1"):
        cache.get_into_many(["a", "b"], [bytearray(1)])

    async def run() -> None:
        async with AsyncNanoKVCache(0, socket=door, tenant=cache._tenant) as same:
            again = [bytearray(n) for n in sizes[:10]]
            sized = await same.get_into_many([f"k{n}" for n in sizes[:10]], again)
            assert isinstance(sized[7], Missing) and sized[8:] == sizes[8:10]
            assert again[8] == pattern(sizes[8])[: sizes[8]]

    asyncio.run(run())


@pytest.mark.parametrize("size", [1000, 300_000])
@pytest.mark.parametrize("direct", [False, True])
def test_what_is_pinned_stays(door: Path, size: int, direct: bool) -> None:
    value = pattern(size)[:size]
    with NanoKVCache(0, socket=door, tenant=f"pins {size} {direct}", direct=direct) as cache:
        cache.put("plain", value)
        cache.put("pinned", value, pinned=True)
        cache.put_many([("batch", value)], pinned=True)
        cache.open_for_write("pieces", size, pinned=True)
        cache.write("pieces", 0, value)
        cache.commit("pieces")
        cache.evict_until_below(0.0)
        assert cache.has(["plain", "pinned", "batch", "pieces"]) == [False, True, True, True]
        with pytest.raises(Full, match="pinned"):
            cache.open_for_write("too much", HEAP // 2, pinned=True)
        cache.remove_many(["pinned", "batch", "pieces"])


def test_what_has_the_lowest_priority_leaves_first(meridian_binary: Path, tmp_path: Path) -> None:
    async def run(cache: AsyncNanoKVCache) -> None:
        async with cache:
            await cache.put("first", bytes(1 << 20), priority=2)
            await cache.put_many([("second", bytes(1 << 20))], priority=1)
            await cache.open_for_write("third", 1 << 20, priority=255, pinned=False)
            await cache.write("third", 0, bytes(1 << 20))
            await cache.commit("third")
            await cache.put("last", bytes(1 << 20))
            used = (await cache.stats())["heap_used"] / (await cache.stats())["heap_total"]
            left = []
            for part in (0.8, 0.55, 0.3):
                assert await cache.evict_until_below(used * part) == 1
                left.append(await cache.has(["first", "second", "third", "last"]))
            assert left == [
                [True, True, True, False],
                [True, False, True, False],
                [False, False, True, False],
            ]

    policy = {"MERIDIAN_STORE_POLICY": "priority", "MERIDIAN_STORE_DIRECT_MAP": "false"}
    with owner(meridian_binary, tmp_path / "state", 16 << 20, **policy) as agent:
        asyncio.run(run(AsyncNanoKVCache(0, socket=agent.socket)))
        with NanoKVCache(0, socket=agent.socket) as cache, pytest.raises(ValueError, match="0 to 255"):
            cache.put("k", b"v", priority=256)


def test_an_object_that_is_written_piece_by_piece(cache: NanoKVCache, door: Path) -> None:
    value = pattern(600_000)[:600_000]
    plan = cache.open_for_write("key", len(value))
    assert isinstance(plan, WritePlan)
    assert (plan.bytes_total, plan.n_pages, plan.page_bytes, plan.dst_rank) == (
        600_000,
        3,
        256 << 10,
        cache.rank,
    )
    for wait in (0.0, 0.05):
        with pytest.raises(NotReady):
            cache.get_location("key", wait=wait)
    with pytest.raises(Missing):
        cache.get_location("another")
    with pytest.raises(Missing):
        cache.get("key")
    cache.write("key", 1000, memoryview(value)[1000:])
    cache.write("key", 0, value[:1000])
    with pytest.raises(StoreError, match="object of 600000"):
        cache.write("key", 1, value)
    cache.commit("key")
    assert cache.get("key") == value
    at = cache.get_location("key")
    assert isinstance(at, ObjMeta)
    assert (at.key_hash, at.header_off, at.payload_off) == (plan.key_hash, plan.header_off, plan.payload_base)
    with pytest.raises(StoreError, match="not open"):
        cache.commit("key")
    cache.open_for_write("other", 10)
    cache.abort("other")
    cache.put("other", b"value")


def test_what_was_open_ends_with_its_writer(door: Path) -> None:
    with NanoKVCache(0, socket=door, tenant="left") as cache:
        cache.open_for_write("key", 1 << 20)
    with NanoKVCache(0, socket=door, tenant="left") as cache:
        cache.put("key", b"value")


def test_who_waits_for_an_object_gets_it(cache: NanoKVCache) -> None:
    threading.Timer(0.1, cache.put, ("late", b"value")).start()
    assert cache.get_location("late", wait=10).bytes_total == 5


def test_buffers_of_all_kinds(cache: NanoKVCache) -> None:
    with mmap.mmap(-1, 100_000) as mapped:
        mapped[:] = pattern(100_000)[:100_000]
        cache.put("mmap", mapped)
        assert cache.get("mmap") == mapped[:]
    cache.put(b"\xff\x00", memoryview(pattern(50_000))[:50_000])
    shaped = memoryview(bytearray(50_000)).cast("B", (50, 1000))
    cache.get(b"\xff\x00", dst=shaped)
    assert shaped.tobytes() == pattern(50_000)[:50_000]
    with pytest.raises(TypeError, match="no buffer protocol"):
        cache.put("no", "text")
    with pytest.raises(TypeError, match="written"):
        cache.get("mmap", dst=memoryview(bytes(100_000)))
    with pytest.raises(TypeError, match="contiguous"):
        cache.put("no", memoryview(bytes(100))[::2])
    with pytest.raises(ValueError, match="empty"):
        cache.put("no", b"")


class Tensor:
    """What is asked of a torch tensor."""

    def __init__(self, memory: bytearray, device: str = "cpu", contiguous: bool = True) -> None:
        from ctypes import addressof, c_char

        self._memory, self._contiguous = memory, contiguous
        self._address = addressof(c_char.from_buffer(memory))
        self.device = type("device", (), {"type": device, "__str__": lambda _: device})()

    def data_ptr(self) -> int:
        return self._address

    def is_contiguous(self) -> bool:
        return self._contiguous

    def numel(self) -> int:
        return len(self._memory) // 2

    def element_size(self) -> int:
        return 2


def test_tensors(cache: NanoKVCache) -> None:
    value = pattern(40_000)[:40_000]
    cache.put("tensor", Tensor(bytearray(value)))
    dst = Tensor(into := bytearray(40_000))
    assert cache.get("tensor", dst=dst) is dst
    assert into == value
    with pytest.raises(TypeError, match="cpu"):
        cache.put("no", Tensor(bytearray(2), device="cuda:0"))
    with pytest.raises(TypeError, match="contiguous"):
        cache.put("no", Tensor(bytearray(2), contiguous=False))


def test_the_counters_and_eviction(cache: NanoKVCache) -> None:
    cache.evict_until_below(0.0)
    cache.put("a", pattern(1 << 20))
    stats = cache.stats()
    assert stats["arena_bytes"] == HEAP
    assert stats["ready"] == 1
    assert 1 << 20 < stats["heap_used"] < stats["heap_total"] < HEAP
    assert stats["owners"][0]["name"] == "n"
    assert cache.evict_until_below(0.5) == 0
    assert cache.evict_until_below(0.0) == 1
    assert cache.has(["a"]) == [False]
    with pytest.raises(TooLarge):
        cache.put("a", bytes(HEAP + 1))


def test_the_door_is_found_where_commands_would_look(
    door: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MERIDIAN_STATE", str(door.parent))
    NanoKVCache(0).close()
    monkeypatch.delenv("MERIDIAN_STATE")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with pytest.raises(ValueError, match=r"no agent has a door in .*meridian: start one"):
        NanoKVCache(0)
    (tmp_path / "meridian").mkdir()
    for name in "ab":
        (tmp_path / "meridian" / f"door-{name}.sock").touch()
    with pytest.raises(ValueError, match=r"2 doors .*door-a\.sock, door-b\.sock; say which"):
        NanoKVCache(0)


def test_what_cannot_be(door: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="heap_bytes"):
        NanoKVCache(HEAP + 1, socket=door)
    NanoKVCache(HEAP, socket=door).close()
    with pytest.raises(DoorError, match="no agent"):
        NanoKVCache(0, socket=tmp_path / "absent")
    with pytest.raises(ValueError, match="timeout"):
        NanoKVCache(0, socket=door, timeout=0)
    with NanoKVCache(0, socket=door) as cache:
        with pytest.raises(ValueError, match="1 to 1000"):
            cache.put("", b"v")
        with pytest.raises(ValueError, match="between 0 and 1"):
            cache.evict_until_below(1.5)
        with pytest.raises(StoreError, match="rank 9"):
            cache.put("k", b"v", preferred_segment=9)
    with pytest.raises(StoreError, match="closed"):
        cache.get("k")


def test_threads(cache: NanoKVCache) -> None:
    wrong: list[Any] = []

    def work(n: int) -> None:
        for i in range(20):
            value = pattern(30_000 * (n % 3) + i + 1)
            cache.put(f"{n} {i}", value)
            if cache.get(f"{n} {i}") != value:
                wrong.append((n, i))
            cache.remove(f"{n} {i}")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_asyncio(door: Path) -> None:
    async def run() -> None:
        async with AsyncNanoKVCache(HEAP, socket=door, tenant="async") as cache:
            assert cache.rank == 0
            sizes = [1 + 7000 * i for i in range(100)]
            await asyncio.gather(*(cache.put(f"k{n}", pattern(n)[:n]) for n in sizes))
            found = await asyncio.gather(*(cache.get(f"k{n}") for n in sizes))
            assert found == [pattern(n)[:n] for n in sizes]
            assert await cache.longest_run([f"k{n}" for n in sizes]) == 100
            assert await cache.get("k7001", dst=(dst := bytearray(7001))) is dst
            with pytest.raises(Missing):
                await cache.get("none")
            await cache.open_for_write("plan", 20_000)
            await cache.write("plan", 0, pattern(20_000)[:20_000])
            waiting = asyncio.create_task(cache.get_location("plan", wait=5))
            await asyncio.sleep(0)
            await auntil("it is asked", lambda: unread() == 0)
            await cache.commit("plan")
            assert (await waiting).bytes_total == 20_000
            cancelled = asyncio.create_task(cache.get_location("never", wait=0.2))
            await asyncio.sleep(0)
            await auntil("it is asked", lambda: unread() == 0)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            assert isinstance((await cache.remove_many(["none", "plan"]))[0], Missing)
        with pytest.raises(StoreError, match="closed"):
            await cache.get("k1")

    asyncio.run(run())


def test_an_agent_without_a_cache(meridian_binary: Path, tmp_path: Path) -> None:
    agent = Agent(meridian_binary, tmp_path / "state", "n", "--no-directory")
    try:
        with pytest.raises(StoreError, match="no object cache"):
            NanoKVCache(0, socket=agent.socket)
        with pytest.raises(StoreError, match="no object cache"):
            asyncio.run(AsyncNanoKVCache(0, socket=agent.socket).open())
    finally:
        agent.stop()


WRITER = """
import sys
from meridian.store import NanoKVCache
cache = NanoKVCache(0, socket=sys.argv[1], tenant="killed", direct=sys.argv[2] == "True")
cache.open_for_write("key", 16 << 20)
print("ready", flush=True)
piece = bytes(8 << 20)
while True:
    cache.write("key", 8 << 20, piece)
"""


def test_a_writer_that_is_killed_leaves_nothing(door: Path) -> None:
    for wait, direct in ((0.0, False), (0.003, True), (0.01, False), (0.01, True)):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(door), str(direct)],
            cwd=Path(__file__).parents[1],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        time.sleep(wait)
        writer.kill()
        writer.communicate()
        with NanoKVCache(0, socket=door, tenant="killed") as cache:
            until = time.monotonic() + PATIENCE
            while isinstance(error := cache.put_many([("key", b"value")])[0], Exists):
                assert time.monotonic() < until, "its room was not given back"
            assert error is None
            cache.remove("key")


def test_an_agent_that_hangs_keeps_the_memory(
    meridian_binary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (_link, _cache_asyncio):
        monkeypatch.setattr(module, "GRACE", 0.2)
        monkeypatch.setattr(module, "FAREWELL", 0.2)
    held: list[Any] = []
    monkeypatch.setattr(_link, "HELD", held)
    monkeypatch.setattr(_cache_asyncio, "HELD", held)

    async def hang(agent: Agent) -> None:
        async with AsyncNanoKVCache(0, socket=agent.socket, timeout=0.1) as cache:
            with agent.paused(), pytest.raises(StoreError) as caught:
                await cache.get_into("key", bytearray(100_000))
            assert caught.value.code == "held"

    with owner(meridian_binary, tmp_path / "state") as agent:
        with NanoKVCache(0, socket=agent.socket, timeout=5.0) as cache:
            cache.put("key", pattern(100_000)[:100_000])
        with NanoKVCache(0, socket=agent.socket, timeout=0.1) as cache:
            with agent.paused(), pytest.raises(StoreError) as caught:
                cache.get_into("key", dst := bytearray(100_000))
            assert caught.value.code == "held"
            with pytest.raises(BufferError):
                dst.append(0)  # it stays where it is
        asyncio.run(hang(agent))
        assert len(held) == 2
        with NanoKVCache(0, socket=agent.socket) as cache:
            assert cache.get("key") == pattern(100_000)[:100_000]


def test_a_cache_whose_agent_comes_back(meridian_binary: Path, tmp_path: Path) -> None:
    large = pattern(300_000)
    with (
        owner(meridian_binary, tmp_path / "state") as agent,
        NanoKVCache(0, socket=agent.socket, direct=True) as cache,
    ):
        cache.put("key", large)
        cache.open_for_write("begun", 100)
        agent.kill()
        agent.start()
        until = time.monotonic() + PATIENCE
        while True:
            try:
                assert cache.has(["key"]) == [False]  # it was in the memory of the one that died
                break
            except StoreError:
                assert time.monotonic() < until
        # The same header, epoch and key in memory of another agent: the old mapping has the old value.
        cache.put("key", large[::-1])
        assert cache.get("key") == large[::-1]
        with pytest.raises(StoreError) as caught:
            cache.commit("begun")
        assert caught.value.code == "lost"
