"""The connector's worker: what it lends, what it tells, and how long it waits for news."""

from __future__ import annotations

import threading

from vllmworld import FakeRankDoor

from meridian.door import Event, EventKind, GPUMemory
from meridian.vllm.handoffs import Step, Watch
from meridian.vllm.memory import Region
from meridian.vllm.progress import Progress
from meridian.vllm.worker import ConnectorWorker

TRANSFER = bytes(15) + b"\x01"


def test_a_worker_lends_one_region_after_the_other() -> None:
    door = FakeRankDoor()
    ConnectorWorker(door).lend([Region(1, 10), Region(100, 20)])
    assert door.lent == [(1, 10, True), (100, 20, False)]


def test_a_worker_lends_memory_of_a_gpu() -> None:
    door = FakeRankDoor()
    memory = [GPUMemory(bytes(64), bytes(16), offset=offset) for offset in (0, 512)]
    ConnectorWorker(door).lend_gpu([(memory[0], 10), (memory[1], 20)])
    assert door.lent == [(0, 10, True), (512, 20, False)]


def test_an_idle_step_waits_for_news_and_others_do_not() -> None:
    door = FakeRankDoor()
    worker = ConnectorWorker(door)
    worker.told(Step(watches={"d": Watch(TRANSFER, (1,))}, idle=True))
    worker.report()
    worker.told(Step())
    worker.report()
    assert door.naps[0] > 0 and door.naps[1] == 0


def test_caches_on_their_way_are_waited_for_longer_than_blocks_that_are_kept() -> None:
    door = FakeRankDoor()
    worker = ConnectorWorker(door)
    worker.told(Step(idle=True))
    worker.report()
    worker.told(Step(watches={"d": Watch(TRANSFER, (1,))}, idle=True))
    worker.report()
    assert 0 < door.naps[0] < door.naps[1] < 0.01


def test_a_worker_that_has_news_does_not_wait_for_more() -> None:
    door = FakeRankDoor()
    worker = ConnectorWorker(door)
    worker.told(Step(freed=("p",), idle=True))
    assert worker.report().sent == {"p"} and door.naps == [0.0]
    worker.told(Step(watches={"d": Watch(TRANSFER, (1,))}, landed=("d",), idle=True))
    assert worker.report().received == {"d"} and door.naps == [0.0, 0.0]


def test_a_cache_that_is_there_is_reported_once() -> None:
    door = FakeRankDoor()
    worker = ConnectorWorker(door)
    worker.told(Step(watches={"d": Watch(TRANSFER, (1,))}, idle=True))
    door.events = [Event(EventKind.READY, TRANSFER, True)] * 2
    assert worker.report().received == {"d"}
    worker.told(Step(landed=("d",), idle=True))
    assert worker.report().received == set()


def test_a_worker_tells_some_times_how_far_it_is() -> None:
    door = FakeRankDoor()
    worker = ConnectorWorker(door, 20)
    worker.told(Step())
    worker.saved(19)
    assert door.told == []
    worker.told(Step(computing=((TRANSFER, 0),)))
    for layer in range(20):
        worker.saved(layer)
    assert door.told == [(TRANSFER, layers, 0) for layers in (3, 6, 9, 12, 15, 18, 20)]
    worker.told(Step())
    worker.saved(19)
    assert len(door.told) == 7, "of a step that computes nothing of it"


class Kernel:
    """Work of a GPU that runs when the test lets it."""

    def __init__(self) -> None:
        self.run = threading.Event()

    def synchronize(self) -> None:
        assert self.run.wait(10)


def test_a_layer_is_told_when_its_kernel_has_run() -> None:
    door, kernels = FakeRankDoor(), [Kernel() for _ in range(4)]
    queued = iter(kernels)
    progress = Progress(lambda: next(queued))
    worker = ConnectorWorker(door, 4, progress)
    worker.told(Step(computing=((TRANSFER, 0),)))
    for layer in range(2):
        worker.saved(layer)
    worker.told(Step())  # the next step is queued before this one has run
    worker.saved(0)
    assert door.told == []
    kernels[1].run.set()
    assert door.told == [], "of a kernel behind one that has not run"
    kernels[0].run.set()
    worker.close(10)
    assert door.told == [(TRANSFER, 1, 0), (TRANSFER, 2, 0)]


def test_what_a_gpu_that_hangs_leaves_untold_is_bounded() -> None:
    door, hung = FakeRankDoor(), Kernel()
    worker = ConnectorWorker(door, 1, Progress(lambda: hung))
    worker.told(Step(computing=((TRANSFER, 0),)))
    for _ in range(5000):
        worker.saved(0)
    worker.close(0.01)
    hung.run.set()
    while len(door.told) < 1024:
        tells = threading.active_count() > 1
        assert tells or len(door.told) >= 1024, "the thread has ended, and not told"
    assert len(door.told) <= 1026
