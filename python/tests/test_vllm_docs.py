"""docs/vllm.md names every series that the connector adds to vLLM's metrics, and no other."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def emitted() -> set[str]:
    """Return the names in stats.py as Prometheus shows them. Without vLLM it can be read, not run."""
    tree = ast.parse((ROOT / "python/meridian/vllm/stats.py").read_text())
    found = set()
    for statement in tree.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.value, ast.Dict):
            suffix = {"_HISTOGRAMS": "", "_COUNTERS": "_total", "_GAUGES": ""}[ast.unparse(statement.target)]
            names = [ast.literal_eval(row.elts[0]) for row in rows(statement.value)]
            found |= {f"vllm:meridian_{name}{suffix}" for name in names}
    return found


def rows(table: ast.Dict) -> list[ast.Tuple]:
    return [row for row in table.values if isinstance(row, ast.Tuple)]


def test_series_are_documented() -> None:
    page = (ROOT / "docs/vllm.md").read_text()
    documented = set(re.findall(r"^\| `(vllm:meridian_\w+)` \|", page, re.MULTILINE))
    assert len(documented) > 5 and documented == emitted()
