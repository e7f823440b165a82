"""vLLM's own tests of what a connector may rely on and must do, with Meridian's connector."""

from __future__ import annotations

import json
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import tiny_model
from conftest import ROOT
from installed import HOME, require_vllm, vllm_environment

pytestmark = pytest.mark.real

FILES = [
    "test_remote_prefill_lifecycle",
    "test_remote_decode_lifecycle",
    "test_invalid_blocks_correctness",
    "test_error_propagation",
    "test_kv_load_failure_recovery",
    "test_cache_pollution_prevention",
    "test_output_aggregator",
]

NOT_OURS = {
    "test_short_prompt_lifecycle": "looks at fields of NIXL's answer",
    "test_prefix_cache_lifecycle": "looks at fields of NIXL's answer",
    "test_p_side_chunked_prefill_mamba": "of a model with Mamba layers, which the connector refuses",
    "test_async_load_does_not_double_reserve_mamba_spec_blocks": "of a model with Mamba layers",
}


def test_connector_tests_of_vllm(tmp_path: Path) -> None:
    require_vllm()
    tests = HOME / "tests" / "v1" / "kv_connector" / "unit"
    assert tests.is_dir(), f"vLLM's tests are not at {tests}: run make vllm"
    model = tmp_path / "model"
    tiny_model.write(model)
    settings = model / "config.json"
    longer = json.loads(settings.read_text()) | {"max_position_embeddings": 16384}
    settings.write_text(json.dumps(longer))
    junit = tmp_path / "junit.xml"
    not_ours = " or ".join(NOT_OURS)
    command = [
        *(str(HOME / "bin" / "python"), "-m", "pytest", "-q", "-p", "upstream", "-p", "no:cacheprovider"),
        *("--junitxml", str(junit), "-k", f"not ({not_ours})"),
        *(str((tests / f"{name}.py").relative_to(HOME)) for name in FILES),
    ]
    path = [ROOT / "python", Path(__file__).parent, HOME]
    environment = {
        **vllm_environment(),
        "PYTHONPATH": ":".join(map(str, path)),
        "UPSTREAM_MODEL": str(model),
    }
    done = subprocess.run(command, cwd=HOME, env=environment, capture_output=True, text=True, timeout=300)
    print(done.stdout[-6000:], done.stderr[-2000:])
    assert done.returncode == 0
    passed = [
        case.attrib["classname"].rpartition(".")[2] for case in ElementTree.parse(junit).iter("testcase")
    ]
    assert set(passed) == set(FILES), "a file had nothing for us"


def test_the_documents_say_which() -> None:
    said = (ROOT / "docs" / "vllm.md").read_text()
    missing = [name for name in [*FILES, *NOT_OURS] if name not in said]
    assert not missing, f"docs/vllm.md does not name {missing}"
