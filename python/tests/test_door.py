"""The Python client of the engine door, with real agents: hand-offs, loss, return, deadlines."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from engines import DECODE, PREFILL, TOKENS, Engine, until
from kvcache import Cut
from processes import PATIENCE, Agent, Process, open_descriptors

from meridian.door import (
    Accept,
    Control,
    Door,
    DoorError,
    Event,
    EventKind,
    GPUMemory,
    Offer,
    Rank,
    Scope,
    new_transfer,
    sealed_memfd,
    socket_path,
    transfer_of,
)


@pytest.fixture(scope="module")
def cell(meridian_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Agent, Agent]]:
    """Two agents, as if of two hosts."""
    state = tmp_path_factory.mktemp("cell")
    state.chmod(0o700)
    directory = Process(meridian_binary, state / "directory.log", "directory", "--state", str(state))
    agents = [Agent(meridian_binary, state, name) for name in ("one", "two")]
    yield agents[0], agents[1]
    for process in (*agents, directory):
        process.stop()


@pytest.fixture
def agent(meridian_binary: Path, tmp_path: Path) -> Iterator[Agent]:
    """An agent alone, for a test that hurts it."""
    agent = Agent(meridian_binary, tmp_path / "state", "n", "--no-directory")
    yield agent
    agent.stop()


def transfers(events: list[Event]) -> list[bytes]:
    return [event.transfer for event in events]


@pytest.mark.parametrize("borrow", [False, True], ids=["memfd", "borrowed"])
def test_hand_off_between_two_cuts(cell: tuple[Agent, Agent], borrow: bool) -> None:
    with (
        Engine(cell[0].socket, f"prefill-{borrow}", PREFILL) as prefill,
        Engine(cell[1].socket, f"decode-{borrow}", DECODE, borrow=borrow) as decode,
    ):
        prefill.until(EventKind.SERVING)
        decode.until(EventKind.SERVING)
        transfer = new_transfer()
        prefill.cut.fill(prefill.memory, len(TOKENS), prefill.cut.table(len(TOKENS), 7))
        ticket = prefill.offer(transfer, first=7)
        assert transfer_of(ticket) == transfer
        assert decode.accept(ticket, first=3) == transfer
        (ready,) = decode.until(EventKind.READY)
        assert ready == Event(EventKind.READY, transfer, accepted=True)
        decode.cut.check(decode.memory, len(TOKENS), decode.cut.table(len(TOKENS), 3))
        (freed,) = prefill.until(EventKind.FREED)
        assert freed == Event(EventKind.FREED, transfer)
        for rank in decode.ranks:
            until(rank, [], EventKind.SERVING, EventKind.READY)
        with pytest.raises(DoorError) as used:
            decode.accept(ticket)
        assert used.value.code == "used"


def test_layers_follow_as_they_are_computed(cell: tuple[Agent, Agent]) -> None:
    with (
        Engine(cell[0].socket, "by-layer", PREFILL) as prefill,
        Engine(cell[1].socket, "decode", DECODE) as decode,
    ):
        transfer, table = new_transfer(), prefill.cut.table(len(TOKENS), 0)
        ticket = prefill.control.offer(Offer(transfer, TOKENS, [table], layers=0))
        decode.until(EventKind.SERVING)
        decode.accept(ticket)
        prefill.control.progress(transfer, 1)
        assert decode.control.poll_events(0.1) == []
        prefill.cut.fill(prefill.memory, len(TOKENS), table)
        prefill.control.progress(transfer, 2)
        decode.until(EventKind.READY)


def test_what_is_not_wanted_comes_back(cell: tuple[Agent, Agent]) -> None:
    with (
        Engine(cell[0].socket, "giver", PREFILL) as prefill,
        Engine(cell[1].socket, "fickle", DECODE) as decode,
    ):
        prefill.until(EventKind.SERVING)
        decode.until(EventKind.SERVING)
        withdrawn, cancelled, declined = new_transfer(), new_transfer(), new_transfer()
        prefill.offer(withdrawn)
        prefill.control.withdraw_offer(withdrawn)
        prefill.control.withdraw_offer(withdrawn)  # it has ended, which is no error
        offer = Offer(cancelled, TOKENS, [prefill.cut.table(len(TOKENS), 16)], layers=0)
        decode.accept(prefill.control.offer(offer))
        decode.control.cancel_accept(cancelled)
        ended = decode.until(EventKind.FAILED, EventKind.FREED)
        assert [event.problem.code for event in ended if event.problem] == ["cancelled", "cancelled"]
        decode.control.decline_ticket(prefill.offer(declined, first=32))
        freed = prefill.until(*[EventKind.FREED] * 3)
        assert set(transfers(freed)) == {withdrawn, cancelled, declined}


def test_an_engine_writes_its_own_tickets(cell: tuple[Agent, Agent]) -> None:
    with (
        Engine(cell[0].socket, "prefill-mint", PREFILL) as prefill,
        Engine(cell[1].socket, "decode-mint", DECODE) as decode,
    ):
        table = prefill.cut.table(len(TOKENS), 0)
        prefill.cut.fill(prefill.memory, len(TOKENS), table)
        offer = Offer(new_transfer(), TOKENS, [table], layers=2, scope=Scope(salt="s"))
        ticket = prefill.control.write_ticket(offer)
        prefill.control.offer_soon(offer)
        with pytest.raises(DoorError) as refused:
            decode.accept(ticket)
        assert refused.value.code == "other_salt"
        wanted = Accept(ticket, TOKENS, [decode.cut.table(len(TOKENS), 0)], scope=Scope(salt="s"))
        assert decode.control.accept(wanted) == offer.transfer
        decode.until(EventKind.SERVING, EventKind.READY)
        decode.cut.check(decode.memory, len(TOKENS), decode.cut.table(len(TOKENS), 0))
    with pytest.raises(DoorError) as closed:
        prefill.control.write_ticket(offer)
    assert closed.value.code == "closed"


def test_a_request_of_something_else_is_refused(cell: tuple[Agent, Agent]) -> None:
    with (
        Engine(cell[0].socket, "owner", PREFILL) as prefill,
        Engine(cell[1].socket, "stranger", DECODE) as decode,
    ):
        transfer = new_transfer()
        ticket = prefill.offer(transfer)
        table = [decode.cut.table(len(TOKENS), 0)]
        for code, accept in {
            "other_prompt": Accept(ticket, [*TOKENS[:-1], 0], table),
            "other_salt": Accept(ticket, TOKENS, table, scope=Scope(salt="s")),
            "other_model": Accept(ticket, TOKENS, table, scope=Scope(model="n")),
            "forged": Accept(ticket[:-1] + bytes([ticket[-1] ^ 1]), TOKENS, table),
            "ticket": Accept(b"no ticket", TOKENS, table),
        }.items():
            with pytest.raises(DoorError) as refused:
                decode.control.accept(accept)
            assert (refused.value.code, bool(refused.value.message)) == (code, True)
        with pytest.raises(DoorError) as contradicted:
            prefill.offer(transfer, first=20)
        assert contradicted.value.code == "contradiction"


def test_an_engine_comes_back_with_its_agent(agent: Agent) -> None:
    with Engine(agent.socket, "p", PREFILL) as prefill, Engine(agent.socket, "d", DECODE) as decode:
        offered, accepted = new_transfer(), new_transfer()
        prefill.offer(offered)
        waiting = Offer(accepted, TOKENS, [prefill.cut.table(len(TOKENS), 16)], layers=0)
        decode.accept(prefill.control.offer(waiting))
        agent.kill()
        lost = prefill.until(EventKind.SERVING, *[EventKind.FREED] * 2, EventKind.FENCED)
        assert transfers(lost) == [bytes(16), offered, accepted, bytes(16)]
        lost = decode.until(EventKind.SERVING, EventKind.FAILED, EventKind.FREED, EventKind.FENCED)
        assert [(event.transfer, event.accepted) for event in lost[1:3]] == [(accepted, True)] * 2
        assert {event.problem.code for event in lost[1:] if event.problem} == {"gone"}
        with pytest.raises(DoorError) as absent:
            prefill.offer(new_transfer())
        assert absent.value.code == "not_serving"
        assert not prefill.control.serving
        agent.start()
        prefill.until(EventKind.SERVING)
        decode.until(EventKind.SERVING)
        prefill.cut.fill(prefill.memory, len(TOKENS), prefill.cut.table(len(TOKENS), 1))
        decode.accept(prefill.offer(new_transfer(), first=1))
        decode.until(EventKind.READY)
        decode.cut.check(decode.memory, len(TOKENS), decode.cut.table(len(TOKENS), 0))


def test_gpu_memory_is_lent_by_its_handle(agent: Agent) -> None:
    with Door(agent.socket, "e", rank=Rank(0, 1)) as rank:
        with pytest.raises(DoorError) as refused:
            rank.lend_gpu(GPUMemory(bytes(64), bytes(range(16)), offset=4096), 8192)
        assert refused.value.code == "unsupported"
        assert "no accelerator support" in refused.value.message
    with pytest.raises(ValueError, match="not 64 and 16"):
        GPUMemory(bytes(63), bytes(16))


def test_the_loss_of_a_rank_fences_and_the_engine_comes_back(agent: Agent) -> None:
    with Engine(agent.socket, "e", DECODE) as engine:
        transfer = new_transfer()
        engine.control.offer(Offer(transfer, TOKENS, [engine.cut.table(len(TOKENS), 0)], layers=2))
        engine.ranks[1].close()
        _, freed, _ = engine.until(EventKind.SERVING, EventKind.FREED, EventKind.FENCED)
        assert (freed.transfer, freed.problem and freed.problem.code) == (transfer, "withdrawn")
        with Door(agent.socket, "e", rank=Rank(1, 2)) as again:
            fd = sealed_memfd(engine.cut.rank_bytes)
            again.lend_memfd(fd)
            os.close(fd)
            engine.until(EventKind.SERVING)
            engine.control.offer(Offer(new_transfer(), TOKENS, [engine.cut.table(len(TOKENS), 0)], layers=2))


def test_an_agent_may_come_later(meridian_binary: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    with pytest.raises(DoorError, match="no agent at") as absent:
        Engine(Path(socket_path(state, "n")), "e", PREFILL)
    assert absent.value.code == "lost"
    engine = Engine(Path(socket_path(state, "n")), "e", PREFILL, patient=True)
    assert not engine.control.serving
    agent = Agent(meridian_binary, state, "n", "--no-directory")
    with engine:
        engine.until(EventKind.SERVING)
    agent.stop()


def test_an_agent_that_does_not_answer(agent: Agent) -> None:
    with Engine(agent.socket, "e", PREFILL, answer_timeout=4.0) as engine:
        engine.until(EventKind.SERVING)
        transfer = new_transfer()
        with agent.paused():
            with pytest.raises(DoorError) as silent:
                engine.offer(transfer)
            assert silent.value.code == "no_answer"
            # A stopped agent may still write: the blocks stay out until the connection ends.
            assert engine.control.poll_events(0.2) == []
            with pytest.raises(DoorError) as given_up:
                engine.offer(new_transfer())
            assert given_up.value.code == "not_serving"
        freed, _, _ = engine.until(EventKind.FREED, EventKind.FENCED, EventKind.SERVING)
        assert freed.transfer == transfer


def test_telling_never_waits(agent: Agent) -> None:
    with Engine(agent.socket, "e", PREFILL) as engine:
        with agent.paused():
            began = time.monotonic()
            for number in range(20):  # more than the socket takes
                engine.control.progress(bytes(1 << 20), number)
            engine.control.progress(new_transfer(), 1)
            assert time.monotonic() - began < 20
        engine.offer(new_transfer())  # it comes after all of them


def test_an_agent_that_never_reads_is_left(agent: Agent) -> None:
    with Engine(agent.socket, "e", PREFILL) as engine:
        engine.until(EventKind.SERVING)
        with agent.paused():
            for number in range(80):
                engine.control.progress(bytes(1 << 20), number)
        engine.until(EventKind.FENCED, EventKind.SERVING)


def test_close_waits_until_the_memory_is_quiet(agent: Agent) -> None:
    engine = Engine(agent.socket, "e", PREFILL)
    engine.control.wait_serving()
    transfer = new_transfer()
    engine.offer(transfer)
    with agent.paused():
        with pytest.raises(DoorError) as held:
            engine.control.close(timeout=0.2)
        assert held.value.code == "held"
    engine.close()
    engine.until(EventKind.SERVING, EventKind.FREED, EventKind.FENCED)
    with pytest.raises(DoorError) as closed:
        engine.offer(new_transfer())
    assert closed.value.code == "closed"
    with pytest.raises(DoorError):
        engine.control.wait_serving()
    engine.control.close()


def test_nothing_is_left_behind(agent: Agent) -> None:
    before = threading.active_count(), open_descriptors()
    for name in "abc":
        with Engine(agent.socket, name, DECODE) as engine:
            engine.offer(new_transfer())
    with pytest.raises(DoorError):
        Door(agent.socket, "a/b", control=Control()).open()
    Door(agent.socket, "d", control=Control()).close()
    assert (threading.active_count(), open_descriptors()) == before


def test_many_threads_ask_at_once(agent: Agent) -> None:
    cut = Cut(tp=1, block_tokens=4, blocks=4096)
    with Engine(agent.socket, "e", cut) as engine, ThreadPoolExecutor(16) as pool:
        engine.until(EventKind.SERVING)
        ids = [new_transfer() for _ in range(100)]
        tickets = list(pool.map(engine.offer, ids, range(0, 1000, 10)))
        assert [transfer_of(ticket) for ticket in tickets] == ids
        list(pool.map(engine.control.withdraw_offer, ids))
        freed = engine.until(*[EventKind.FREED] * len(ids))
        assert set(transfers(freed)) == set(ids)
        soon = [
            engine.control.offer_soon(
                Offer(new_transfer(), TOKENS, [cut.table(len(TOKENS), first)], layers=2)
            )
            for first in range(0, 1000, 10)
        ]
        assert all(future.result(PATIENCE) for future in soon)


def test_events_by_descriptor_and_by_call(agent: Agent) -> None:
    told: list[Event] = []
    complaints: list[Exception] = []
    happened = threading.Semaphore(0)

    def on_event(event: Event) -> None:
        told.append(event)
        try:
            control.wait_serving()
        except DoorError as error:
            complaints.append(error)
        happened.release()
        raise RuntimeError("a listener that fails")

    cut = Cut(tp=1, block_tokens=4, blocks=64)
    control = Door(agent.socket, "e", control=Control(), on_event=on_event)
    with control, Door(agent.socket, "e", rank=Rank(0, 1)) as rank:
        assert rank.poll_events() == []
        assert select.select([rank], [], [], 0) == ([], [], [])
        control.publish(cut.publication())
        fd = sealed_memfd(cut.rank_bytes)
        rank.lend_memfd(fd)
        os.close(fd)
        assert select.select([rank], [], [], PATIENCE) == ([rank], [], [])
        assert rank.poll_events() == [Event(EventKind.SERVING)]
        assert select.select([rank], [], [], 0) == ([], [], [])
        assert happened.acquire(timeout=PATIENCE)
    assert [event.kind for event in told] == [EventKind.SERVING, EventKind.FENCED]
    assert [error.code for error in complaints if isinstance(error, DoorError)] == ["order"] * 2


@pytest.mark.parametrize(
    ("lend", "code"),
    [
        (lambda door, fd: door.lend_memfd(fd, 1), "size"),
        (lambda door, fd: door.lend_borrowed(8, 4096), "denied"),
    ],
    ids=["another size", "memory of no process"],
)
def test_memory_that_cannot_be_lent(agent: Agent, lend: Callable[[Door, int], None], code: str) -> None:
    with (
        Door(agent.socket, "e", control=Control()) as control,
        Door(agent.socket, "e", rank=Rank(0, 1)) as rank,
    ):
        fd = sealed_memfd(PREFILL.rank_bytes)
        with pytest.raises(DoorError) as refused:
            lend(rank, fd)
        assert refused.value.code == code
        control.publish(PREFILL.publication())
        rank.lend_memfd(fd)  # what was refused is not said again
        os.close(fd)
        control.wait_serving()


def test_a_door_is_of_control_or_of_a_rank(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="control"):
        Door(tmp_path / "door.sock", "e")
    with pytest.raises(ValueError, match="control"):
        Door(tmp_path / "door.sock", "e", control=Control(), rank=Rank(0, 1))
