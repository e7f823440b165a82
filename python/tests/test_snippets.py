"""The snippets in documents do what they say."""

import pathlib
import re

import pytest

from meridian import mrdn

ROOT = pathlib.Path(__file__).parents[2]


def snippet(document: str) -> str:
    found = re.search(r"```python\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)
    assert found, f"{document} has no Python in it"
    return found.group(1)


@pytest.fixture(autouse=True)
def beside_a_frame(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "block.mrdn").write_bytes(mrdn.encode(mrdn.Tier.THINK_COMPLETE, b"the KV of one block"))


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("document", ["docs/wire.md", "python/README.md"])
def test_snippet_prints_the_frame(document: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(snippet(document), {})
    assert "think_complete b'the KV of one block'" in capsys.readouterr().out
