"""A prefill and a decode vLLM behind a gateway, with all that hands caches over between them."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from api_client import Answer, post
from fault_proxy import FaultProxy
from installed import require_vllm
from oracle import Case, Oracle
from processes import Agent, Process
from servers import Server, free_port, wait_all_ready
from waiting import until

KEEP = 10.0
"""Seconds that a producer keeps what is not taken."""
DEADLINE = 5.0
"""Seconds that a consumer waits for a cache."""


@dataclass(frozen=True)
class Side:
    """How one of the two servers is started."""

    flags: tuple[str, ...] = ()
    block: int = 32
    policy: str = "recompute"
    """What vLLM does with a request whose cache did not arrive."""
    mode: str = "pull"
    keep: float = KEEP
    deadline: float = DEADLINE
    at: str = ""
    """The agent: prefill or decode; the side's own name, unless told."""
    role: str = ""
    """Of kv_producer, kv_consumer and kv_both; the side's own, unless told."""
    extra: Mapping[str, object] = field(default_factory=dict)
    """What else the connector is told."""


def _memory() -> str | None:
    """Return where files are in memory: while servers start, a disk can keep the directory waiting."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _shared(bytes: int) -> dict[str, str]:
    return {"MERIDIAN_STORE_ENABLED": "true", "MERIDIAN_STORE_BYTES": str(bytes)} if bytes else {}


class Cell:
    """A directory and two agents, which reach each other over TCP by proxies with faults."""

    def __init__(
        self, binary: Path, undo: contextlib.ExitStack, fabrics: str = "tcp", store_bytes: int = 0
    ) -> None:
        """Start them. `store_bytes`: of prefixes that each agent keeps; 0: there is no shared cache."""
        self.binary = binary
        self.state = Path(tempfile.mkdtemp(prefix="meridian-vllm-", dir=_memory()))
        undo.callback(shutil.rmtree, self.state, ignore_errors=True)
        self.logs = self.state / "logs"
        self.state.chmod(0o700)
        self.logs.mkdir()
        self.directory = Process(binary, self.logs / "directory.log", "directory", "--state", str(self.state))
        undo.callback(self.directory.stop)
        self.proxies: dict[str, FaultProxy] = {}
        self.agents: dict[str, Agent] = {}
        for name in ("prefill", "decode"):
            port = free_port()
            self.proxies[name] = undo.enter_context(FaultProxy(port))
            self.agents[name] = Agent(
                binary,
                self.state,
                name,
                *("--fabrics", fabrics, "--listen", f"127.0.0.1:{port}"),
                *("--advertise", f"127.0.0.1:{self.proxies[name].port}"),
                environment=_shared(store_bytes),
            )
            undo.callback(self.agents[name].stop)

    def start_server(self, name: str, model: Path, side: Side, kind: type[Server] = Server) -> Server:
        """Start a server, without waiting for it."""
        agent = side.at or name
        # As `meridian up` starts them.
        kv_role, extra = side.role, side.extra
        if not kv_role:
            kv_role = {"prefill": "kv_both", "decode": "kv_consumer"}[agent]
            extra = {"role": agent, **extra}
        transfer = {
            "kv_connector": "Connector",
            "kv_connector_module_path": "meridian.vllm",
            "kv_role": kv_role,
            "engine_id": name,
            "kv_load_failure_policy": side.policy,
            "kv_connector_extra_config": {
                "state_dir": str(self.state),
                "agent": agent,
                "mode": side.mode,
                "keep_ms": int(side.keep * 1000),
                "deadline_ms": int(side.deadline * 1000),
                "cache_always": True,  # a model as small as this is computed sooner than it is fetched
                **extra,
            },
        }
        log = self.logs / f"vllm-{name}.log"
        return kind(name, model, log, *side.flags, block=side.block, transfer=transfer)

    @contextlib.contextmanager
    def changed_bytes(self, count: int = sys.maxsize) -> Iterator[None]:
        """Change a byte in so many of the chunks that pass between the agents."""
        proxies = self.proxies.values()
        before = sum(proxy.flipped for proxy in proxies)
        for proxy in proxies:
            proxy.flip(count)
        try:
            yield
        finally:
            for proxy in proxies:
                proxy.flip(0)
        assert sum(proxy.flipped for proxy in proxies) > before, "no byte was changed"

    @contextlib.contextmanager
    def held_bytes(self) -> Iterator[None]:
        """Keep data waiting between the agents."""
        proxies = self.proxies.values()
        for proxy in proxies:
            proxy.hold()
        try:
            yield
        finally:
            for proxy in proxies:
                proxy.release()

    def said(self) -> str:
        """Return the end of what everybody said that matters."""
        parts = sorted([*self.logs.iterdir(), *self.state.glob("*.log")])
        return "\n".join(f"==> {part.name}\n{_last_words(part)}" for part in parts)


class Pair:
    """The two servers and the gateway."""

    def __init__(self, cell: Cell, prefill: Server, decode: Server, *, by_prefix: bool) -> None:
        self.cell, self.prefill, self.decode = cell, prefill, decode
        self.port, self._admin = free_port(), free_port()
        self.gateway = Process(
            cell.binary,
            cell.logs / "gateway.log",
            *("gateway", "--state", str(cell.state), "--direct-tokens", "0"),
            *("--listen", f"127.0.0.1:{self.port}", "--admin", f"127.0.0.1:{self._admin}"),
            environment={"MERIDIAN_GATEWAY_PREFIX_AFFINITY": "1" if by_prefix else "0"},
        )

    def wait_known(self, servers: int = 2, seconds: float = 20.0) -> None:
        """Wait until the gateway has found out what all servers are."""

        def known() -> bool:
            return len([engine for engine in self._engines() if engine["up"]]) >= servers

        until("the gateway knows all servers", known, seconds, said=self._engines)

    def _engines(self) -> list[dict[str, Any]]:
        engines: list[dict[str, Any]] = self._admin_page("/debug/engines")["engines"]
        return engines

    def move_the_only_one(self) -> str:
        """Ask the only request that runs to leave its server, and return its id."""
        (running,) = self._admin_page("/debug/requests")["running"]
        asked: str = running["id"]
        answer = post(self._admin, {}, f"/requests/{asked}/move")
        assert answer.status == 202, answer
        return asked

    def moves_of(self, asked: str) -> list[dict[str, Any]]:
        """Return how a request moved, once it is recorded."""

        def recorded() -> dict[str, Any] | None:
            latest: list[dict[str, Any]] = self._admin_page("/debug/requests")["latest"]
            return next((record for record in latest if record["id"] == asked), None)

        record = until(f"{asked} is recorded", recorded, 20)
        assert record is not None
        moves: list[dict[str, Any]] = record.get("moves", [])
        return moves

    def _admin_page(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._admin}{path}", timeout=10) as answer:
            return json.load(answer)

    def ask(self, case: Case, **more: object) -> Answer:
        return post(self.port, case.request(**more))

    def prefill_leg(self, case: Case, at: Server | None = None) -> dict[str, Any]:
        """Have a prompt computed and offered, as a gateway does; return what goes to the decode server."""
        return have_offered(at or self.prefill, case)

    def forget_prefixes(self) -> None:
        """Let both servers forget the prompts they know, so that caches have to move again."""
        for server in (self.prefill, self.decode):
            answer = post(server.port, {}, "/reset_prefix_cache")
            assert answer.status == 200, answer

    def handed_over(self) -> float:
        """Return how many tokens of prompts have come over so far, as the connector counts them."""
        return self.decode.metric("vllm:meridian_handoff_tokens_sum")

    def failed(self) -> float:
        """Return how many prompts' caches did not come, while a client waited."""
        return self.decode.metric("vllm:meridian_handoffs_failed_total")

    def computed(self) -> float:
        """Return how many tokens of prompts the decode server computed itself so far."""
        return self.decode.metric("vllm:prompt_tokens_by_source_total", source="local_compute")

    def abandoned(self) -> float:
        """Return how many caches were given up because no client waited for them any more."""
        return self.decode.metric("vllm:meridian_handoffs_abandoned_total")

    def until_failed(self, count: float) -> None:
        """Wait until so many hand-offs count as failed, and no more."""
        _until_counted(self.failed, count, "hand-offs have failed")
        assert self.failed() == count

    def ahead(self) -> float:
        """Return how many prompts were offered while they were computed."""
        return self.prefill.metric("vllm:meridian_offers_ahead_total")

    def chunked(self) -> float:
        """Return how many prompts were offered before their last chunk was computed."""
        return self.prefill.metric("vllm:meridian_offers_chunked_total")

    def until_ahead(self, count: float) -> None:
        """Wait until so many prompts count as offered while they were computed."""
        _until_counted(self.ahead, count, "prompts were offered ahead")

    def until_abandoned(self, count: float) -> None:
        """Wait until so many hand-offs count as abandoned."""
        _until_counted(self.abandoned, count, "hand-offs were abandoned")

    def until_handed_over(self, oracle: Oracle, seconds: float = 30.0) -> None:
        """Ask, right answers expected, until a prompt's cache comes over again."""
        before = self.handed_over()
        case = oracle.long(300)[-1]

        def comes() -> bool:
            self.forget_prefixes()
            case.check(self.ask(case).tokens)
            return self.handed_over() > before

        until("a cache is handed over", comes, seconds)

    def assert_nothing_held(self, seconds: float = KEEP + 10.0) -> None:
        """Wait until neither server holds a block for a transfer."""
        assert_nothing_held(self.prefill, self.decode, seconds=seconds)


def have_offered(server: Server, case: Case) -> dict[str, Any]:
    """Have a prompt computed and offered; return what goes to a decode server."""
    wish = {"do_remote_decode": True, "do_remote_prefill": False}
    answer = post(server.port, case.request(max_tokens=1, kv_transfer_params=wish))
    params: dict[str, Any] | None = answer.body.get("kv_transfer_params")
    assert params and params["do_remote_prefill"], f"nothing was offered: {answer.body}"
    return params


def found(server: Server) -> float:
    """Return how many tokens have come from the cell's cache so far."""
    return server.metric("vllm:meridian_found_tokens_total")


def until_kept(server: Server, count: float, seconds: float = 20.0) -> None:
    """Wait until the cell has the caches of so many requests."""

    def kept() -> float:
        return server.metric("vllm:meridian_kept_total")

    until(f"{count:g} requests are kept", lambda: kept() >= count, seconds, said=kept)


def assert_nothing_held(*servers: Server, seconds: float) -> None:
    """Wait until no server holds a block for a transfer."""

    def held() -> dict[str, float]:
        usage = {server.name: server.metric("vllm:kv_cache_usage_perc") for server in servers}
        return {name: part for name, part in usage.items() if part > 0}

    until("no server holds a block", lambda: not held(), seconds, said=held)


def _until_counted(counter: Callable[[], float], count: float, what: str, seconds: float = 5.0) -> None:
    """Wait until a counter of vLLM has come so far: they lag behind its answers."""
    until(f"{count:g} {what}", lambda: counter() >= count, seconds, said=counter)


_CHATTER = ("Recovered from KV load failure", " Route: ")


def _last_words(log: Path, lines: int = 40) -> str:
    said = log.read_text(errors="replace").splitlines()
    grave = [line for line in said if not any(words in line for words in _CHATTER)]
    return "\n".join(line[:400] for line in grave[-lines:])


@contextlib.contextmanager
def running_pair(
    binary: Path, model: Path, prefill: Side, decode: Side, *, by_prefix: bool = False, store_bytes: int = 0
) -> Iterator[Pair]:
    """Run a cell with two servers.

    `by_prefix`: the gateway places prompts by what servers hold. Then those that
    the decode server was sent before may go straight to it.
    """
    require_vllm()
    with contextlib.ExitStack() as undo:
        cell = Cell(binary, undo, store_bytes=store_bytes)
        servers = []
        for name, side in (("prefill", prefill), ("decode", decode)):
            servers.append(cell.start_server(name, model, side))
            undo.callback(servers[-1].stop)
        wait_all_ready(*servers)
        pair = Pair(cell, servers[0], servers[1], by_prefix=by_prefix)
        undo.callback(pair.gateway.stop)
        pair.wait_known()
        yield pair


@pytest.fixture
def told(pair: Pair, request: pytest.FixtureRequest) -> Iterator[None]:
    """Show what everybody said where a test fails."""
    failed = request.session.testsfailed
    yield
    if request.session.testsfailed > failed:
        print(pair.cell.said())
