"""The extra configuration of the connector."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from meridian.vllm.settings import Settings, governor_wait_of

DOOR = {"state_dir": "/state", "agent": "a"}


def test_what_is_not_said_has_its_default() -> None:
    assert Settings.read(DOOR) == Settings(
        "/state/door-a.sock", "", None, False, 10.0, 30.0, False, True, False
    )


def test_everything_can_be_said() -> None:
    said = {
        "socket": "/door",
        "url": "http://here",
        "role": "prefill",
        "mode": "push",
        "deadline_ms": 1500,
        "keep_ms": 250,
        "agent_required": True,
        "cache": False,
        "cache_always": True,
        "keep_thoughts": "pressure",
    }
    assert Settings.read(said) == Settings(
        "/door", "http://here", "prefill", True, 1.5, 0.25, True, False, True, "pressure"
    )


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ({}, "say where the agent's door is"),
        ({"agent": "a"}, "say where the agent's door is"),
        (DOOR | {"socket": "/door"}, "say where the agent's door is"),
        (DOOR | {"mod": "pull"}, "kv_connector_extra_config.mod: there is no such key; did you mean mode"),
        (DOOR | {"role": "kv_both"}, "role: 'kv_both' is none of prefill, decode and both"),
        (DOOR | {"mode": "shove"}, "'shove' is neither pull nor push"),
        (DOOR | {"deadline_ms": 0}, "deadline_ms: 0 is no time"),
        (DOOR | {"deadline_ms": True}, "deadline_ms: True is no time"),
        (DOOR | {"keep_ms": "9"}, "keep_ms: '9' is no time"),
        (DOOR | {"url": 7}, "url: 7 is no text"),
        (DOOR | {"agent_required": "yes"}, "agent_required: 'yes' is neither"),
        (DOOR | {"cache": 1}, "cache: 1 is neither"),
        (DOOR | {"cache_always": "no"}, "cache_always: 'no' is neither"),
        (DOOR | {"keep_thoughts": True}, "keep_thoughts: True is none of never, pressure and always"),
    ],
)
def test_what_is_wrong_is_named(said: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Settings.read(said)


@pytest.mark.parametrize(
    ("kv_role", "role", "is_for"),
    [
        ("kv_producer", None, "prefill"),
        ("kv_consumer", None, "decode"),
        ("kv_both", None, "both"),
        ("kv_both", "prefill", "prefill"),
        ("kv_both", "decode", "decode"),
        ("kv_producer", "prefill", "prefill"),
        ("kv_producer", "decode", None),
        ("kv_consumer", "both", None),
    ],
)
def test_what_a_server_is_for(kv_role: str, role: str | None, is_for: str | None) -> None:
    settings = Settings.read(DOOR | ({"role": role} if role else {}))
    if is_for is None:
        with pytest.raises(ValueError, match="say kv_both"):
            settings.role_within(kv_role)
    else:
        assert settings.role_within(kv_role) == is_for


def test_the_package_needs_no_vllm_until_the_connector_is_wanted() -> None:
    program = (
        "import sys; sys.modules['vllm'] = None; import meridian.vllm, meridian.vllm.scheduler, "
        "meridian.vllm.worker\n"
        "try: meridian.vllm.Connector\n"
        "except ImportError: print('no vllm')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "no vllm", done.stderr


def test_a_test_says_how_long_steps_wait_for_decisions() -> None:
    def told(additional: object) -> float | None:
        return governor_wait_of(SimpleNamespace(additional_config=additional))

    assert told(None) is None and told({}) is None and told({"meridian": {"agent": "a"}}) is None
    assert told({"meridian": {"governor_wait_ms": 2500}}) == 2.5
    for wrong in (0, -1, 60_001, True, "1", None, float("nan")):
        with pytest.raises(ValueError, match=r"governor_wait_ms: .* is no time of 1 to 60000"):
            told({"meridian": {"governor_wait_ms": wrong}})
