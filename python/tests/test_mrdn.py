"""MRDN frames, held to the vectors that the Go and C++ tests read as well."""

from __future__ import annotations

import array
import io
from collections.abc import Iterator

import pytest
from conftest import TESTDATA

from meridian import mrdn
from meridian.mrdn import (
    DEFAULT_MAX_BODY,
    HEADER_SIZE,
    BadChecksum,
    BadTier,
    FrameError,
    Reader,
    Tier,
    TooLarge,
    Truncated,
    Writer,
)


def vectors(name: str) -> list[list[str]]:
    lines = (TESTDATA / "mrdn" / name).read_text().splitlines()
    found = [line.split() for line in lines if not line.startswith("#")]
    assert found
    return found


def pattern(size: int) -> bytes:
    return (bytes(range(251)) * (size // 251 + 1))[:size]


@pytest.mark.parametrize("line", vectors("golden.txt"), ids=lambda line: "-".join(line[:2]))
def test_golden_vectors(line: list[str]) -> None:
    tier, body = Tier.named(line[0]), pattern(int(line[1]))
    head = bytes.fromhex(line[2])
    assert mrdn.header(tier, body) == head
    assert mrdn.encode(tier, body) == head + body
    frame, rest = mrdn.parse(head + body)
    assert (frame.tier, frame.checksum, bytes(frame.body), bytes(rest)) == (tier, head[16:], body, b"")
    assert list(Reader(io.BytesIO(head + body))) == [frame]


@pytest.mark.parametrize("line", vectors("bad.txt"), ids=lambda line: "-".join(line[:2]))
def test_bad_vectors(line: list[str]) -> None:
    verdict, max_body, data = line[0], int(line[2]), bytes.fromhex(line[3].strip("-"))
    with pytest.raises(FrameError) as parsed:
        mrdn.parse(data, max_body)
    assert parsed.value.verdict == verdict
    if not data:
        assert list(Reader(io.BytesIO(data), max_body)) == []  # a stream may end between frames
        return
    with pytest.raises(FrameError) as read:
        next(Reader(io.BytesIO(data), max_body))
    assert read.value.verdict == verdict


def test_every_verdict_has_a_vector() -> None:
    verdicts = {error.verdict for error in FrameError.__subclasses__()}
    assert verdicts == {line[0] for line in vectors("bad.txt")}


def test_every_prefix_is_truncated() -> None:
    frame = mrdn.encode(Tier.THINK_ACTIVE, pattern(100))
    for n in range(len(frame)):
        with pytest.raises(Truncated):
            mrdn.parse(frame[:n])
        if n:
            with pytest.raises(Truncated):
                next(Reader(io.BytesIO(frame[:n])))


@pytest.mark.parametrize("tier", Tier)
def test_every_flipped_bit_is_seen(tier: Tier) -> None:
    """The one flip that the format cannot show is a tier that becomes another valid tier."""
    tier_byte = 12
    frame = bytearray(mrdn.encode(tier, pattern(200)))
    for bit in range(8 * len(frame)):
        frame[bit // 8] ^= 1 << bit % 8
        try:
            mrdn.parse(frame)
            seen = False
        except FrameError:
            seen = True
        assert seen != (bit // 8 == tier_byte and frame[tier_byte] in list(Tier)), f"bit {bit}"
        frame[bit // 8] ^= 1 << bit % 8


def test_parse_copies_nothing_and_leaves_what_follows() -> None:
    stream = bytearray(mrdn.encode(Tier.THINK_COMPLETE, b"one") + mrdn.encode(Tier.OUTPUT_CRITICAL, b"two"))
    first, rest = mrdn.parse(stream)
    second, end = mrdn.parse(rest)
    assert (second.tier, bytes(second.body), len(end)) == (Tier.OUTPUT_CRITICAL, b"two", 0)
    stream[HEADER_SIZE] = ord("0")
    assert bytes(first.body) == b"0ne"
    assert first.body.readonly


def test_bodies_of_any_buffer_type() -> None:
    numbers = array.array("I", [1, 2, 3])
    frame = mrdn.encode(Tier.THINK_ACTIVE, memoryview(numbers))
    assert mrdn.parse(array.array("B", frame))[0].body.tobytes() == numbers.tobytes()
    assert mrdn.parse(mrdn.encode(0, array.array("I")))[0].body.tobytes() == b""


def test_encoding_refuses_unknown_tiers() -> None:
    for tier in (3, -1, 255):
        with pytest.raises(BadTier):
            mrdn.encode(tier, b"")
        with pytest.raises(BadTier):
            Writer(io.BytesIO()).write(tier, b"")


def test_encoding_refuses_what_a_frame_cannot_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mrdn, "_MAX_U32", 10)
    assert mrdn.header(Tier.THINK_ACTIVE, bytes(10))
    with pytest.raises(TooLarge):
        mrdn.header(Tier.THINK_ACTIVE, bytes(11))


def test_tier_names() -> None:
    assert [str(tier) for tier in Tier] == ["think_complete", "think_active", "output_critical"]
    with pytest.raises(ValueError, match="think_complete"):
        Tier.named("THINK_ACTIVE")


class Trickle:
    """Returns at most three bytes at a time and notes the largest wish."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)
        self.largest_wish = 0

    def read(self, size: int, /) -> bytes:
        self.largest_wish = max(self.largest_wish, size)
        return self._file.read(min(size, 3))


def test_stream_round_trip() -> None:
    bodies = [b"", b"\7", pattern(16 << 10), pattern(3 << 20), b"last"]
    stream = io.BytesIO()
    writer = Writer(stream)
    for i, body in enumerate(bodies):
        writer.write(i % 3, body)
    stream.seek(0)
    reader, offset = Reader(stream), 0
    for i, body in enumerate(bodies):
        assert reader.offset == offset
        frame = next(reader)
        assert (frame.tier, bytes(frame.body)) == (i % 3, body)
        offset += HEADER_SIZE + len(body)
    assert next(reader, None) is None


def test_stream_of_short_reads() -> None:
    stream = mrdn.encode(0, pattern(1000)) + mrdn.encode(2, b"end")
    assert [bytes(frame.body) for frame in Reader(Trickle(stream))] == [pattern(1000), b"end"]


def test_stream_goes_on_after_a_bad_checksum() -> None:
    stream = bytearray(mrdn.encode(1, b"abc") + mrdn.encode(1, b"def"))
    stream[HEADER_SIZE] ^= 1
    reader = Reader(io.BytesIO(stream))
    with pytest.raises(BadChecksum):
        next(reader)
    assert bytes(next(reader).body) == b"def"


def test_allocation_follows_arrival() -> None:
    """A header that promises 200 MiB and brings nothing must not cost 200 MiB."""
    head = bytearray(mrdn.header(Tier.THINK_ACTIVE, b""))
    head[8:12] = (200 << 20).to_bytes(4, "little")
    stream = Trickle(bytes(head))
    with pytest.raises(Truncated):
        next(Reader(stream))
    assert stream.largest_wish <= 1 << 20


def test_a_cap_of_the_caller() -> None:
    frame = mrdn.encode(0, bytes(100))
    assert DEFAULT_MAX_BODY == 256 << 20
    assert len(mrdn.parse(frame, 100)[0].body) == 100
    with pytest.raises(TooLarge):
        mrdn.parse(frame, 99)


def test_a_reader_is_an_iterator() -> None:
    reader: Iterator[mrdn.Frame] = Reader(io.BytesIO(mrdn.encode(0, b"x")))
    assert iter(reader) is reader
