"""docs/vllm.md and docs/cache.md, typed as they stand: what they show works."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from conftest import ROOT
from installed import HOME, require_vllm, vllm_environment

pytestmark = pytest.mark.real

PAGES = {
    "vllm.md": r"^vllm:meridian_handoff_seconds_count.* 1\.0$",
    "cache.md": r"^vllm:meridian_found_tokens_total.* [1-9]",
}
"""And what must have been said at the end."""
LIMIT = 600.0
"""Seconds for the whole page; on two quiet cores it takes about two minutes."""

ONCE = "make "
"""Begins commands that the user who runs this test has typed already."""

INSTALL = ".peers/vllm/bin/pip install ./python"


def commands(page: str) -> list[str]:
    """Return what the console blocks type, in order."""
    text = (ROOT / "docs" / page).read_text()
    blocks = re.findall(r"^```console\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [
        command.strip() for block in blocks for command in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    ]


def script(typed: list[str], packages: Path) -> str:
    """Return the page as a script that stops at the first command that fails.

    The package is installed from its wheel, but not into the environment that
    other tests use.
    """
    lines = ["set -eo pipefail", "trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT"]
    for command in typed:
        if command.startswith(ONCE):
            continue
        if command == INSTALL:
            pip = f"{sys.executable} -m pip install -q --no-deps --no-build-isolation"
            command = f"{pip} --target {packages} ./python"
        lines.append(f"echo {_quoted('$ ' + command)}")
        lines.append(command.replace(".peers/vllm", str(HOME)))
    return "\n".join(lines)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


@pytest.mark.parametrize("page", PAGES)
def test_page_can_be_typed(page: str, tmp_path: Path, meridian_binary: Path) -> None:
    require_vllm()
    assert meridian_binary == ROOT / "bin" / "meridian", "the page runs what make build has built"
    typed = commands(page)
    servers = [command for command in typed if re.search(r"serve (--port )?8\d{3} ", command)]
    assert INSTALL in typed and len(servers) == 2, typed
    short = Path(tempfile.mkdtemp(prefix="typed-"))  # sockets must not have long paths
    (tmp_path / "packages").mkdir()
    environment = vllm_environment() | {
        "PYTHONPATH": str(tmp_path / "packages"),
        "VIRTUAL_ENV": str(HOME),
        "TMPDIR": str(short),
        "HOME": str(tmp_path),
    }
    for name in list(environment):
        if name.startswith(("VLLM_CPU_", "OMP_", "HF_")):
            del environment[name]  # the page says what is needed
    log = tmp_path / "typed.log"
    with log.open("wb") as out:
        shell = subprocess.Popen(
            ["bash", "-c", script(typed, tmp_path / "packages")],
            cwd=ROOT,
            env=environment,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = shell.wait(LIMIT)
        finally:
            _end(shell)
            shutil.rmtree(short, ignore_errors=True)
    said = log.read_text(errors="replace")
    assert status == 0, said[-8000:]
    assert re.search(PAGES[page], said, re.MULTILINE), said[-8000:]


def _end(shell: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(shell.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        shell.wait()
