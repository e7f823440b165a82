"""Frames from Python to the Go program and back."""

from __future__ import annotations

import io
import json
import subprocess
from pathlib import Path

import pytest

from meridian import mrdn
from meridian.mrdn import Reader, Tier, Writer

BODIES = [b"", b"x", bytes(range(256)) * 64, b"\0" * (1 << 20)]


def meridian(binary: Path, *arguments: str, stdin: bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([binary, "frame", *arguments], input=stdin, capture_output=True, timeout=60)


def test_go_reads_what_python_writes(meridian_binary: Path) -> None:
    stream = io.BytesIO()
    writer, want = Writer(stream), []
    for i, body in enumerate(BODIES):
        tier = Tier(i % len(Tier))
        row = {"tier": str(tier), "body_bytes": len(body), "checksum": mrdn.checksum(body).hex(), "ok": True}
        want.append(row | {"offset": stream.tell()})
        writer.write(tier, body)
    run = meridian(meridian_binary, "inspect", "--json", "-", stdin=stream.getvalue())
    assert run.returncode == 0, run.stderr.decode()
    got = [{key: row[key] for key in want[0]} for row in json.loads(run.stdout)["frames"]]
    assert got == want


def test_go_sees_what_python_damages(meridian_binary: Path) -> None:
    frame = bytearray(mrdn.encode(Tier.THINK_ACTIVE, b"abc"))
    frame[-1] ^= 1
    run = meridian(meridian_binary, "inspect", "--json", "-", stdin=bytes(frame))
    assert run.returncode != 0
    assert [row["ok"] for row in json.loads(run.stdout)["frames"]] == [False]


@pytest.mark.parametrize("tier", Tier)
@pytest.mark.parametrize("body", BODIES, ids=len)
def test_python_reads_what_go_writes(meridian_binary: Path, tier: Tier, body: bytes) -> None:
    run = meridian(meridian_binary, "encode", "--tier", str(tier), stdin=body)
    assert run.returncode == 0, run.stderr.decode()
    (frame,) = Reader(io.BytesIO(run.stdout))
    assert (frame.tier, bytes(frame.body)) == (tier, body)
    assert run.stdout == mrdn.encode(tier, body)
