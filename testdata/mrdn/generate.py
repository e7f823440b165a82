"""Writes golden.txt and bad.txt from the text of docs/wire.md alone.

It shares no code with the three implementations it tests; the digests come from
the `blake3` package. Run it from anywhere: python3 testdata/mrdn/generate.py
"""

import pathlib
import struct

from blake3 import blake3

HERE = pathlib.Path(__file__).parent
TIERS = {"think_complete": 0, "think_active": 1, "output_critical": 2}
SIZES = [0, 1, 16 << 10, 8 << 20]


def body(size: int) -> bytes:
    """The pattern of BLAKE3's own test vectors: byte i is i mod 251."""
    return (bytes(range(251)) * (size // 251 + 1))[:size]


def header(tier: int, payload: bytes, *, magic=b"MRDN", version=1, size=None, pad=b"\0\0\0", digest=None) -> bytes:
    size = len(payload) if size is None else size
    digest = blake3(payload).digest()[:16] if digest is None else digest
    return magic + struct.pack("<IIB", version, size, tier) + pad + digest


def golden() -> str:
    lines = ["# tier body_len header: the body is byte i = i mod 251"]
    lines += [f"{name} {size} {header(tier, body(size)).hex()}" for name, tier in TIERS.items() for size in SIZES]
    # Lengths at which BLAKE3 changes its ways: block, chunk and subtree borders.
    borders = [63, 64, 65, 1023, 1024, 1025, 2048, 2049, 3072, 3073, 4096, 8193, 31744, 102400]
    lines += [f"think_active {size} {header(1, body(size)).hex()}" for size in borders]
    return "\n".join(lines) + "\n"


def bad() -> str:
    abc = b"abc"
    good = header(2, abc) + abc
    cases = [
        ("truncated", "nothing", 100, b""),
        ("truncated", "half_a_header", 100, good[:16]),
        ("truncated", "header_without_body", 100, good[:32]),
        ("truncated", "body_short_by_one", 100, good[:-1]),
        ("truncated", "length_beyond_input", 0xFFFFFFFF, header(0, abc, size=0xFFFFFFFF) + abc),
        ("magic", "lower_case", 100, b"mrdn" + good[4:]),
        ("magic", "zeros", 100, bytes(64)),
        ("magic", "big_endian_reader", 100, b"NDRM" + good[4:]),
        ("magic", "checked_before_version", 100, header(0, abc, magic=b"MRDM", version=9) + abc),
        ("version", "zero", 100, header(0, abc, version=0) + abc),
        ("version", "two", 100, header(0, abc, version=2) + abc),
        ("version", "big_endian_one", 100, header(0, abc, version=1 << 24) + abc),
        ("version", "checked_before_pad", 100, header(0, abc, version=7, pad=b"\1\0\0") + abc),
        ("pad", "first", 100, header(0, abc, pad=b"\1\0\0") + abc),
        ("pad", "second", 100, header(0, abc, pad=b"\0\1\0") + abc),
        ("pad", "third", 100, header(0, abc, pad=b"\0\0\x80") + abc),
        ("pad", "checked_before_tier", 100, header(3, abc, pad=b"\0\0\1") + abc),
        ("tier", "three", 100, header(3, abc) + abc),
        ("tier", "last", 100, header(255, abc) + abc),
        ("tier", "checked_before_length", 2, header(3, abc) + abc),
        ("too_large", "one_over_the_cap", 2, good),
        ("too_large", "checked_before_the_body_is_there", 100, header(0, abc, size=101)),
        ("too_large", "cap_of_zero", 0, header(0, b"x") + b"x"),
        ("checksum", "wrong_body", 100, header(0, abc) + b"abd"),
        ("checksum", "zero_digest", 100, header(0, abc, digest=bytes(16)) + abc),
        ("checksum", "empty_body_with_digest_of_abc", 100, header(0, b"", digest=blake3(abc).digest()[:16])),
        ("checksum", "shorter_length_than_was_hashed", 100, header(0, abc, size=2) + abc),
    ]
    lines = ["# verdict name max_body frame (- is the empty input)"]
    lines += [f"{verdict} {name} {cap} {frame.hex() or '-'}" for verdict, name, cap, frame in cases]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    (HERE / "golden.txt").write_text(golden())
    (HERE / "bad.txt").write_text(bad())
