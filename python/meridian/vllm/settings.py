"""What `kv_connector_extra_config` may hold.

=================  =======================================================================
``state_dir``      the agent's state directory, and
``agent``          its name: together they say where its engine door is
``socket``         the path of that door, instead of the two
``url``            where requests reach this server, for gateways that look it up
``role``           what requests this server is for: ``prefill``, ``decode`` or ``both``; as ``kv_role``
                   says, unless told
``mode``           ``pull`` (default): this server's agent reads what it needs;
                   ``push``: the other one's writes it
``deadline_ms``    how long a hand-off may take before the prompt is computed here; 10000.
                   Of a cache that was promised, ``keep_ms`` longer
``keep_ms``        how long a computed prompt waits to be taken; 30000
``cache``          whether prompts begin with what the cell's shared cache has of them, and
                   finished requests are kept there; true, where the agent has one
``cache_always``   whether what the cell has is taken even where computing it is thought to be
                   faster; false: the agent judges that by what this server has measured
``keep_thoughts``  whether a thought that has ended goes to the cell's shared cache while its request
                   goes on, so that it comes back from there if vLLM takes the request's
                   blocks: ``never`` (default), ``pressure``: while vLLM's blocks are nearly
                   used up, ``always``
``agent_required`` whether to start only if the agent is there; false: until it is,
                   prompts are computed where they are decoded
=================  =======================================================================

The engine's name is vLLM's own ``engine_id``, beside ``kv_role``; vLLM itself makes
it different for every data-parallel rank. ``kv_role`` says to vLLM what the connector may
do, and where ``role`` is not given, what requests the server is for: kv_producer for
prefill, kv_consumer for decode, kv_both for both. A server for prefill that has the cell's
shared cache is kv_both with role prefill: only where vLLM knows that the connector loads
does it keep blocks from new requests that a step under way may still write.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from meridian.door import socket_path
from meridian.fault import nearest

_KEYS: Final = (
    "state_dir",
    "agent",
    "socket",
    "url",
    "role",
    "mode",
    "deadline_ms",
    "keep_ms",
    "cache",
    "cache_always",
    "keep_thoughts",
    "agent_required",
)
_MODES: Final = ("pull", "push")
Role = Literal["prefill", "decode", "both"]
_ROLES: Final[Mapping[str, Role]] = {"kv_producer": "prefill", "kv_consumer": "decode", "kv_both": "both"}
_KEEP_THOUGHTS: Final = ("never", "pressure", "always")
_LONGEST_MS: Final = 3_600_000
_LONGEST_STEP_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Settings:
    """What was configured, checked."""

    socket: str
    url: str = ""
    role: Role | None = None
    push: bool = False
    deadline: float = 10.0
    """In seconds, as is `keep`."""
    keep: float = 30.0
    agent_required: bool = False
    cache: bool = True
    cache_always: bool = False
    keep_thoughts: str = "never"

    @classmethod
    def read(cls, extra: Mapping[str, Any]) -> Settings:
        """Read the extra configuration; ValueError names the key that is wrong."""
        for key in extra:
            if key not in _KEYS:
                meant = nearest(key, _KEYS)
                raise _wrong(key, "there is no such key", f"did you mean {meant}?" if meant else "")
        mode = extra.get("mode", "pull")
        if mode not in _MODES:
            raise _wrong("mode", f"{mode!r} is neither pull nor push")
        keep_thoughts = extra.get("keep_thoughts", "never")
        if keep_thoughts not in _KEEP_THOUGHTS:
            raise _wrong("keep_thoughts", f"{keep_thoughts!r} is none of never, pressure and always")
        return cls(
            socket=_socket(extra),
            url=_text(extra, "url"),
            role=_role(extra),
            push=mode == "push",
            deadline=_seconds(extra, "deadline_ms", 10_000),
            keep=_seconds(extra, "keep_ms", 30_000),
            agent_required=_switch(extra, "agent_required", False),
            cache=_switch(extra, "cache", True),
            cache_always=_switch(extra, "cache_always", False),
            keep_thoughts=keep_thoughts,
        )

    def role_within(self, kv_role: str) -> Role:
        """Return what requests the server is for; ValueError where vLLM is told otherwise."""
        given = _ROLES[kv_role]
        if self.role is None or given in (self.role, "both"):
            return self.role or given
        raise _wrong("role", f"{self.role!r} beside kv_role {kv_role!r}", "say kv_both")


def door_of(vllm_config: Any) -> tuple[str, str]:
    """Return where the agent's door is, and the engine's name: the connector's, where there is one.

    A server without the connector says it in ``--additional-config '{"meridian": {"state_dir": …,
    "agent": …, "engine": …}}'``, or with ``socket`` instead of the first two.
    """
    transfer = vllm_config.kv_transfer_config
    if transfer is not None and transfer.kv_connector_module_path == "meridian.vllm":
        return _socket(transfer.kv_connector_extra_config), str(transfer.engine_id)
    additional = vllm_config.additional_config
    given = additional.get("meridian") if isinstance(additional, Mapping) else None
    if not isinstance(given, Mapping):
        raise ValueError(
            "meridian.vllm.Scheduler does not know its agent: say it in "
            '--additional-config \'{"meridian": {"state_dir": …, "agent": …}}\', or use the connector'
        )
    engine = _text(given, "engine") or f"vllm-{vllm_config.instance_id}"
    parallel = vllm_config.parallel_config
    if parallel.data_parallel_size > 1:  # each has a scheduler of its own
        engine = f"{engine}-dp{parallel.data_parallel_rank}"
    return _socket(given), engine


def _role(extra: Mapping[str, Any]) -> Role | None:
    given = extra.get("role")
    for role in _ROLES.values():
        if given == role:
            return role
    if given is None:
        return None
    raise _wrong("role", f"{given!r} is none of prefill, decode and both")


def governor_wait_of(vllm_config: Any) -> float | None:
    """Return for how many seconds a step waits for its decision; None: for as long as the agent says.

    It is for tests: ``--additional-config '{"meridian": {"governor_wait_ms": …}}'``, also beside the
    connector.
    """
    additional = vllm_config.additional_config
    given = additional.get("meridian") if isinstance(additional, Mapping) else None
    if not isinstance(given, Mapping) or "governor_wait_ms" not in given:
        return None
    value = given["governor_wait_ms"]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1 <= value <= _LONGEST_STEP_MS:
        raise ValueError(
            f"additional_config.meridian.governor_wait_ms: {value!r} is no time "
            f"of 1 to {_LONGEST_STEP_MS} milliseconds"
        )
    return float(value) / 1000


def _socket(extra: Mapping[str, Any]) -> str:
    socket, state_dir, agent = (_text(extra, key) for key in ("socket", "state_dir", "agent"))
    if socket and not (state_dir or agent):
        return socket
    if state_dir and agent and not socket:
        return socket_path(state_dir, agent)
    raise _wrong("socket", "say where the agent's door is: either socket, or state_dir and agent")


def _text(extra: Mapping[str, Any], key: str) -> str:
    value = extra.get(key, "")
    if not isinstance(value, str):
        raise _wrong(key, f"{value!r} is no text")
    return value


def _switch(extra: Mapping[str, Any], key: str, default: bool) -> bool:
    value = extra.get(key, default)
    if not isinstance(value, bool):
        raise _wrong(key, f"{value!r} is neither true nor false")
    return value


def _seconds(extra: Mapping[str, Any], key: str, default_ms: int) -> float:
    value = extra.get(key, default_ms)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1 <= value <= _LONGEST_MS:
        raise _wrong(key, f"{value!r} is no time of 1 to {_LONGEST_MS} milliseconds")
    return float(value) / 1000


def _wrong(key: str, reason: str, hint: str = "") -> ValueError:
    return ValueError(f"kv_connector_extra_config.{key}: {reason}" + (f"; {hint}" if hint else ""))
