"""Arenas are read and written as the Go package does, which made the vectors in testdata/store."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator

import pytest
from conftest import TESTDATA

from meridian import _xxh3, arena
from meridian.arena import Announce, Arena, ArenaError, Control, Foreign, Gone, Header, ReadError, State, Torn

VECTORS = TESTDATA / "store"
RECORDS: dict[str, type[Control] | type[Header] | type[Announce]] = {
    "HeapCtl": Control,
    "ObjHeader": Header,
    "Announce": Announce,
}


def lines(name: str) -> list[list[str]]:
    return [line.split() for line in (VECTORS / name).read_text().splitlines() if not line.startswith("#")]


def pattern(seed: int, size: int) -> bytes:
    return bytes((seed + 31 * i + (i >> 8)) & 0xFF for i in range(size))


@pytest.fixture
def image() -> bytearray:
    return bytearray((VECTORS / "arena.bin").read_bytes())


def test_hashes() -> None:
    ways: list[Callable[[memoryview], int]] = [_xxh3.plain, _xxh3.xxh3_64]
    for way in (_xxh3.from_module, _xxh3.from_system):
        try:
            ways.append(way())
        except (ImportError, OSError, AttributeError):
            continue
    for size, hashed, summed in lines("hashes.txt"):
        payload = pattern(0, int(size))
        for way_of in ways:
            for data in (payload, bytearray(payload)):
                assert way_of(memoryview(data)) == int(hashed, 16), size
        assert arena.checksum(payload) == int(summed, 16), size


def test_names() -> None:
    for tenant, key, name in lines("names.txt"):
        assert arena.object_name("t" * int(tenant), b"k" * int(key)).hex() == name
    with pytest.raises(ValueError, match="one byte"):
        arena.object_name("t", "")


def test_extents() -> None:
    for size, key_length, *want in lines("extents.txt"):
        extent = arena.extent_of(int(size), int(key_length))
        assert dataclasses.astuple(extent) == tuple(map(int, want))


def test_records(image: bytearray) -> None:
    """Every record of the image has the fields that Go saw, and is written as Go wrote it."""
    seen = set()
    for name, at, *fields in lines("records.txt"):
        record = RECORDS[name].unpack(image, int(at))
        want = {}
        for field in fields:
            key, _, value = field.partition("=")
            numbers = tuple(map(int, value.split(",")))
            want[key] = numbers if len(numbers) > 1 else numbers[0]
        assert dataclasses.asdict(record) == want
        packed = record.pack()
        assert packed == image[int(at) : int(at) + len(packed)]
        seen.add(name)
    assert seen == set(RECORDS)


@pytest.mark.parametrize(
    "line", lines("objects.txt"), ids=lambda line: f"{line[0]}-{line[1]}-{line[4]}-{line[5]}"
)
def test_objects(image: bytearray, line: list[str]) -> None:
    verdict, key = line[0], bytes.fromhex(line[3])
    index, epoch, start, size, seed = (int(line[n]) for n in (1, 2, 4, 5, 6))
    before = bytes(image)
    dst = bytearray(size)
    # A reader has a mapping that it cannot write.
    opened = Arena(memoryview(image).toreadonly())
    try:
        opened.read_into(dst, index, epoch, key, start)
        found = "good"
    except ReadError as error:
        found = error.verdict
    assert found == verdict
    if found == "good":
        assert dst == pattern(seed, start + size)[start:]
        if size == opened.header(index).bytes_total:
            assert opened.read(index, epoch, key) == dst
    assert image == before


def test_a_torn_object_names_its_segment(image: bytearray) -> None:
    with pytest.raises(Torn, match="segment 1 differs"):
        Arena(image).read(6, 0, b"torn")


@pytest.mark.parametrize(("start", "size"), [(0, 100), (1, 4096), (4096, 4095), (8192, 4114), (16384, 4096)])
def test_a_slice_is_whole_segments(image: bytearray, start: int, size: int) -> None:
    key = b"long key " * 100
    with pytest.raises(ArenaError, match="whole segments"):
        Arena(image).read_into(bytearray(size), 2, 0, key, start)


def test_the_ring(image: bytearray) -> None:
    heard = list(Arena(image).announcements())
    assert [a.key_hash for a in heard] == [arena.hash_key(b"small"), arena.hash_key(b"exact"), 0]
    # A head that a stranger wrote does not make it longer.
    image[116:120] = b"\xff" * 4
    assert len(list(Arena(image).announcements())) == 8


@pytest.mark.parametrize("state", [State.RESERVED, State.WRITING])
@pytest.mark.parametrize("index", [0, 2, 3])
def test_a_writer_writes_what_go_writes(image: bytearray, state: State, index: int) -> None:
    header = Header.unpack(image, 4096 + 64 * index)
    payload = slice(header.payload_base, header.payload_base + header.bytes_total)
    image[4096 + 64 * index : 4160 + 64 * index] = dataclasses.replace(header, state=state).pack()
    golden = bytes(image)
    image[payload] = b"\xee" * header.bytes_total
    opened, value = Arena(image), pattern(index, header.bytes_total)
    opened.fill(index, 0, 50, value[50:])
    opened.fill(index, 0, 0, value[:50])
    assert image == golden


def test_a_writer_needs_its_plan(image: bytearray) -> None:
    opened = Arena(image)
    before = bytes(image)
    for index, epoch in [(0, 0), (4, 0), (5, 1), (24, 0)]:  # ready, dead, another epoch, no header
        with pytest.raises(Gone):
            opened.fill(index, epoch, 0, b"x")
    for offset, size in [(0, 501), (500, 1), (-1, 1)]:
        with pytest.raises(ArenaError, match="of 500"):
            opened.fill(5, 0, offset, bytes(size))
    assert image == before


@pytest.fixture
def overtake(monkeypatch: pytest.MonkeyPatch, image: bytearray) -> Callable[[int, int], None]:
    """Has the owner take a header for another object at the nth fence of a call."""

    def at_fence(index: int, fence: int) -> None:
        fences: Iterator[int] = iter(range(1, 100))

        def count() -> None:
            if next(fences) == fence:
                image[4096 + 64 * index + 36] += 1

        monkeypatch.setattr(arena, "_fence", count)

    return at_fence


@pytest.mark.parametrize("fence", [2, 3])
def test_a_reader_that_is_overtaken(
    image: bytearray, overtake: Callable[[int, int], None], fence: int
) -> None:
    opened, dst = Arena(image), bytearray(100)
    opened.read_into(dst, 0, 0, b"small")
    overtake(0, fence)
    with pytest.raises(Gone, match="was ready in epoch 0, now it has state 2 in epoch 1"):
        opened.read_into(dst, 0, 0, b"small")


def test_an_overtaken_writer(image: bytearray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena, "_PART", 100)
    words = iter([(State.WRITING, 0), (State.WRITING, 0), (State.RESERVED, 1)])
    monkeypatch.setattr(Arena, "word", lambda *_: next(words))
    opened, header, before = Arena(image), Header.unpack(image, 4096 + 64 * 5), bytes(image)
    with pytest.raises(Gone, match="taken back"):
        opened.fill(5, 0, 0, b"\xee" * 500)
    written = image[header.payload_base :][:500]
    assert written == b"\xee" * 200 + before[header.payload_base :][200:500]


def test_a_mapped_arena(image: bytearray) -> None:
    fd = os.memfd_create("arena")
    os.write(fd, image)
    with Arena.open(fd, writable=True) as writer, Arena.open(fd) as reader:
        os.close(fd)
        assert (len(reader), reader.control.epoch) == (24, 3)
        writer.fill(5, 0, 0, pattern(1, 500))
        header = reader.header(5)
        assert reader._bytes[header.payload_base :][:500] == pattern(1, 500)


def test_a_mapping_for_readers_is_not_written(image: bytearray) -> None:
    fd = os.memfd_create("arena")
    os.write(fd, image)
    with Arena.open(fd) as reader:
        os.close(fd)
        with pytest.raises(TypeError, match="read-only"):
            reader.fill(5, 0, 0, bytes(500))


@pytest.mark.parametrize(
    ("at", "value", "about"),
    [
        (140, 2, "layout 2"),
        (32, 0, "0 headers"),
        (32, 1 << 27, "headers"),
        (24, 1, "headers at 1"),
        (112, 7, "ring of 7"),
        (104, 81920, "ring"),
        (8, 81921, "extents"),
        (0, 81920, "extents"),
        (0, 64, "extents"),
    ],
)
def test_what_is_no_arena(image: bytearray, at: int, value: int, about: str) -> None:
    image[at : at + 4] = value.to_bytes(4, "little")
    with pytest.raises(ArenaError, match=about):
        Arena(image)


def test_too_little_is_no_arena() -> None:
    with pytest.raises(ArenaError, match="no arena"):
        Arena(b"")


def test_scribbles_are_misses(image: bytearray) -> None:
    """Whatever others write over headers, a reader reads what was put, or misses."""
    golden = Arena(bytes(image)).read(2, 0, b"long key " * 100)
    for at in range(4096 + 128, 4096 + 192):
        for value in (0, 0x7F, 0xFF):
            scribbled = bytearray(image)
            scribbled[at] = value
            try:
                assert Arena(scribbled).read(2, 0, b"long key " * 100) == golden
            except (Gone, Foreign, Torn):
                continue
