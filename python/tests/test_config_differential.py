"""Random mutants of the corpus, judged by this package and by the Go program.

The corpus holds what its authors thought of; the mutants hold the rest. A failure
prints the mutant, which makes a good new file for the corpus.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from conftest import ROOT, TESTDATA

from meridian import ConfigError, load_config
from meridian.config import MAX_FILE_BYTES

SEED = 1
MUTANTS = 300

CORPUS = TESTDATA / "config"
VALUES = r"""
0 1 -1 512 32768 4294967296 9223372036854775807 9223372036854775808 0x10 1_000 007
0.0 -0.0 0.5 1.0 1e3 1e400 nan inf true false True
"" "auto" "none" "meridian" "nixl" "info" "qwen3" "gpt_oss" "granite" 'x' "\u00e9" "\q" ":1" "http://h"
[] [1] [7,8] ["a"] ["<think>"] ["tcp","host"] ["tcp","tcp"]
[[1]] [1,"a",-1] [{}] {} {open="a"} {a.b=1,} 2026-01-31 07:32 2026-01-31T07:32Z
0000-01-01 0001-01-01 0000-12-31T23:59Z 23:59:60 24:00 2026-02-29
2026-01-31T07:32+24:00 2026-01-31T07:32-23:59
"""
KEYS = """
enabled level fabric fabrics max_think_tokens source channel channel.open tokenizer think_end_texts
think_end_token_ids reasoning_parser cert key backend url role allow_uids a a.b "a.b" "channel.open" ""
model model.m scheduler
"""
HEADERS = """
[scheduler] [model] [model.m] [model.m.channel] [model.n] [[model.m]] [[logging]] [disagg] [agent]
[tls] [a.b.c] [gateway] [[gateway.backend]] [gateway.backend] [gateway.backend.x] [door] ["gateway.backend"]
"""


def any_of(rng: random.Random, words: str) -> str:
    return rng.choice(words.split())


def mutant(rng: random.Random, lines: list[str], others: list[str]) -> list[str]:
    """Return lines with one thing changed."""
    lines = list(lines)
    at = rng.randrange(len(lines))
    key, equals, value = lines[at].partition("=")

    def replace(text: str) -> None:
        lines[at] = text

    def swap() -> None:
        other = rng.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]

    def change_character() -> None:
        place, width = rng.randrange(len(lines[at]) + 1), rng.randrange(2)
        character = rng.choice(["", *"[]{}\"'#=.,-_ 09aA\\\r\u00e9"])
        replace(lines[at][:place] + character + lines[at][place + width :])

    def change_number() -> None:
        replace(re.sub(r"\d+", lambda n: str(int(n[0]) + rng.choice([-1, 1, 1000])), lines[at]))

    changes: list[Callable[[], object]] = [
        lambda: lines.pop(at),
        lambda: lines.insert(rng.randrange(len(lines) + 1), lines[at]),
        lambda: lines.insert(at, rng.choice(others)),
        lambda: lines.insert(at, any_of(rng, HEADERS)),
        lambda: lines.insert(at, f"{any_of(rng, KEYS)} = {any_of(rng, VALUES)}"),
        swap,
        change_character,
        change_number,
    ]
    if equals:
        changes += [
            lambda: replace(f"{key}= {any_of(rng, VALUES)}"),
            lambda: replace(f"{key}= {any_of(rng, VALUES)}"),
            lambda: replace(f"{any_of(rng, KEYS)} = {value}"),
            lambda: replace(f"{key.strip()}.{any_of(rng, KEYS)} = {value}"),
        ]
    rng.choice(changes)()
    return lines or [""]


def mutants(seed: int, count: int) -> list[str]:
    rng = random.Random(seed)
    good = sorted([*CORPUS.glob("good/*"), *ROOT.glob("run/models/*.toml")])
    bad = sorted(CORPUS.glob("bad/*"))
    texts = [file.read_bytes().decode(errors="replace") for file in good * 6 + bad]
    others = [line for text in texts for line in text.split("\n")]
    made = []
    for _ in range(count):
        lines = rng.choice(texts).split("\n")
        for _ in range(rng.randint(1, 3)):
            lines = mutant(rng, lines, others)
        made.append("\n".join(lines))
    return made


def python_verdict(file: Path) -> list[str]:
    try:
        load_config(file, environ={})
    except ConfigError as error:
        return sorted(fault.path for fault in error.faults)
    return []


def go_verdicts(binary: Path, files: list[Path]) -> list[list[str]]:
    run = subprocess.run([binary, "config", "check", "--json", *files], capture_output=True, timeout=120)
    checked = json.loads(run.stdout)["files"]
    assert run.returncode == (0 if all(file["ok"] for file in checked) else 2), run.stderr.decode()
    assert [file["file"] for file in checked] == list(map(str, files))
    return [sorted(fault["path"] for fault in file.get("faults", [])) for file in checked]


def test_mutants_get_one_verdict(meridian_binary: Path, tmp_path: Path) -> None:
    shutil.copytree(CORPUS / "tokenizers", tmp_path / "tokenizers")
    (tmp_path / "mutants").mkdir()
    files = []
    for i, text in enumerate(mutants(SEED, MUTANTS)):
        files.append(tmp_path / "mutants" / f"{i}.toml")
        files[-1].write_bytes(text.encode())
    ours = list(map(python_verdict, files))
    theirs = go_verdicts(meridian_binary, files)
    differences = [
        f"Go says {go}\nPython says {py}\n{file.read_text(encoding='utf-8')}"
        for file, go, py in zip(files, theirs, ours, strict=True)
        if go != py
    ]
    assert not differences, "\n\n".join(differences)
    assert 0 < ours.count([]) < MUTANTS, "mutants should be good now and then"


def over_limit_files() -> list[str]:
    """Files that are too much of something, and some that are just not."""
    made = ["#" * MAX_FILE_BYTES, "#" * (MAX_FILE_BYTES + 1)]
    for depth in (63, 64, 65, 399, 400, 401, 1000, 1001, 5000, 20_000):
        made += [
            f"a = {'[' * depth}{']' * depth}",
            f"a = {'{a=' * depth}1{'}' * depth}",
            f"[tls]\n{'a.' * depth}a = 1",
            f"[{'a.' * depth}a]",
            f"[[{'a.' * depth}a]]\n[{'a.' * depth}a.b]",
            f"[agent]\nfabrics = [[{'{a=[' * (depth // 2)}{']}' * (depth // 2)}]]",
        ]
    for length in (255, 256, 257, 10_000):
        key = "k" * length
        made += [f"{key} = 1", f"[model.{key}]", f"[tls]\na = [{{b = {{{key} = 1}}}}]"]
        made.append(f"[tls]\n'{'é' * (length // 2)}' = 1")
    return made


def test_files_over_a_limit_get_one_verdict(meridian_binary: Path, tmp_path: Path) -> None:
    files = []
    for i, text in enumerate(over_limit_files()):
        files.append(tmp_path / f"{i}.toml")
        files[-1].write_text(text, encoding="utf-8")
    ours = list(map(python_verdict, files))
    theirs = go_verdicts(meridian_binary, files)
    for text, go, py in zip(over_limit_files(), theirs, ours, strict=True):
        assert go == py, text[:60]
