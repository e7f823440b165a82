"""The governed scheduler over vLLM's two, with made-up outputs. It needs vLLM: test_governed.py runs it.

UNIT_MODEL is a model's directory; only its configuration is read.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.config import CacheConfig, DeviceConfig, KVTransferConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler as PlainScheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from meridian.door import Terms, _messages
from meridian.vllm import governed_scheduler, governing
from meridian.vllm.connector import Connector
from meridian.vllm.counters import GOVERNOR, Counters, Since
from meridian.vllm.forced_ends import OUTBOX
from meridian.vllm.governed_scheduler import Scheduler, SyncScheduler
from meridian.vllm.governing import Counts

BLOCK = 4
LAYER = "model.layers.0.self_attn.attn"


class Governor:
    """An agent that decides what a test says."""

    def __init__(self, *_: object, **about: Any) -> None:
        self.about = about
        self.terms: Terms | None = Terms("test", 0.0, 100, 0, (), False)
        self.connections = 1
        self.told: list[Any] = []
        self.decide: Callable[[Any], Any] = lambda step: _messages.Decision(step=step.number)
        self._decisions: list[Any] = []

    @property
    def governed(self) -> bool:
        return self.terms is not None

    def send(self, step: Any) -> bool:
        told = _messages.Step()
        told.CopyFrom(step)  # its owner writes the next one over it
        self.told.append(told)
        if (decision := self.decide(step)) is not None:
            self._decisions.append(decision)
        return True

    def take(self, wait: float = 0.0) -> list[Any]:
        taken, self._decisions = self._decisions, []
        return taken

    def close(self) -> None:
        self.terms = None

    def number(self, name: str) -> int:
        """The number that the engine gave a request."""
        return int(next(b.sequence for step in self.told for b in step.begun if b.id == name))


class World:
    """A scheduler of which the test is the workers."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        asynchronous: bool,
        blocks: int = 100,
        most: int = 8,
        length: int = 128,
        governed: bool = True,
        transfer: KVTransferConfig | None = None,
    ) -> None:
        monkeypatch.setattr(governed_scheduler, "Steps", Governor)
        self.asynchronous = asynchronous
        init_none_hash(sha256)
        config = VllmConfig(
            scheduler_config=SchedulerConfig(
                max_num_seqs=most,
                max_num_batched_tokens=max(64, most),
                max_model_len=length,
                enable_chunked_prefill=True,
                is_encoder_decoder=False,
                async_scheduling=asynchronous,
            ),
            model_config=ModelConfig(
                model=os.environ["UNIT_MODEL"], dtype="float32", seed=1, max_model_len=length
            ),
            cache_config=CacheConfig(block_size=BLOCK, enable_prefix_caching=True),
            device_config=DeviceConfig("cpu"),
            kv_transfer_config=transfer,
            additional_config={"meridian": {"socket": "/nowhere", "engine": "e"}},
        )
        config.scheduler_config.async_scheduling = asynchronous  # a CPU's platform takes it away
        config.cache_config.num_gpu_blocks = blocks
        spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=8, dtype=torch.float32)
        kind = Scheduler if governed else AsyncScheduler if asynchronous else PlainScheduler
        self.scheduler: Any = kind(
            vllm_config=config,
            kv_cache_config=KVCacheConfig(
                num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec([LAYER], spec)]
            ),
            structured_output_manager=StructuredOutputManager(config),
            log_stats=True,
            block_size=BLOCK,
        )
        if governed:
            self.governor: Governor = self.scheduler._governing._steps
        self.flying: list[Any] = []
        self.samples: list[set[str]] = []
        self.said: dict[str, list[int]] = {}

    def add(
        self, name: str, prompt: int = 6, answer: int = 30, *, extra_args: Any = None, **params: Any
    ) -> Request:
        start = 1000 * (len(self.said) + 1)
        self.said[name] = []
        extra_args = extra_args or ({"kv_transfer_params": params} if params else None)
        sampling = SamplingParams(max_tokens=answer, ignore_eos=True, extra_args=extra_args)
        sampling.update_from_generation_config({}, 2)
        request = Request(
            request_id=name,
            prompt_token_ids=[start + i for i in range(prompt)],
            sampling_params=sampling,
            pooling_params=None,
            block_hasher=get_request_block_hasher(BLOCK, sha256),
        )
        self.scheduler.add_request(request)
        return request

    def plan(self) -> list[str]:
        """Plan a step, and return whom it computes."""
        output = self.scheduler.schedule()
        self.flying.append(output)
        names = list(output.num_scheduled_tokens)
        # Workers sample where a step reaches a request's last token. It is known now: when the step lands,
        # a later one may have computed more of the prompt, or the request may have lost its blocks.
        chunks = {name for name in names if self.scheduler.requests[name].is_prefill_chunk}
        self.samples.append(set(names) - chunks)
        return names

    def ask(self) -> None:
        """Ask for a bitmask, as vLLM's engine does when the workers have a step."""
        self.scheduler.get_grammar_bitmask(self.flying[-1])

    def land(self) -> None:
        """Let the oldest step be computed: a request's tokens are its place in its answer."""
        output, samples = self.flying.pop(0), self.samples.pop(0)
        names = list(output.num_scheduled_tokens)
        tokens = []
        for name in names:
            full = name in samples and name in self.scheduler.requests
            tokens.append([len(self.said[name])] if full else [])
            if full:
                self.said[name].append(len(self.said[name]))
        self.scheduler.update_from_output(
            output,
            ModelRunnerOutput(
                req_ids=names,
                req_id_to_index={name: i for i, name in enumerate(names)},
                sampled_token_ids=tokens,
                logprobs=None,
                prompt_logprobs_dict={},
                pooler_output=[],
            ),
        )

    def step(self) -> list[str]:
        """Plan and compute; with asynchronous scheduling one step stays under way."""
        names = self.plan()
        self.ask()
        if not self.asynchronous or len(self.flying) > 1:
            self.land()
        return names


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., World]:
    return lambda **how: World(monkeypatch, request.param, **how)


def test_it_is_the_one_that_the_configuration_wants(world: Callable[..., World]) -> None:
    w = world()
    assert isinstance(w.scheduler, AsyncScheduler) == w.asynchronous
    assert isinstance(w.scheduler, PlainScheduler)
    assert isinstance(w.scheduler, Scheduler if w.asynchronous else SyncScheduler)
    about = w.governor.about
    assert (about["blocks"], about["block_tokens"], about["max_running"]) == (100, BLOCK, 8)


def test_steps_are_told(world: Callable[..., World]) -> None:
    w = world()
    first = w.add("a", prompt=6, answer=3)
    w.add("b", prompt=70, answer=3)  # in chunks
    assert first.sampling_params.extra_args["meridian_sequence"] == 1
    for _ in range(8):
        w.step()
    told = w.governor.told
    begun = {b.id: b for step in told for b in step.begun}
    assert list(begun["a"].tail) == [1000 + i for i in range(6)] and begun["b"].prompt_tokens == 70
    tokens: dict[int, list[int]] = {}
    computed: dict[int, int] = {}
    blocks: dict[int, int] = {}
    for step in told:
        at = ids = 0
        assert len(step.sequences) == len(step.computed) == len(step.counts)
        for i, number in enumerate(step.sequences):
            tokens.setdefault(number, []).extend(step.tokens[at : at + step.counts[i]])
            at += step.counts[i]
            computed[number] = computed.get(number, 0) + step.computed[i]
            if step.block_counts:
                blocks[number] = blocks.get(number, 0) + step.block_counts[i]
                ids += step.block_counts[i]
        assert at == len(step.tokens) and ids == len(step.blocks)
    ended = [number for step in told for number in step.finished]
    assert sorted(ended) == [1, 2]
    # What ends in a step is told as finished, and its last token is not needed any more.
    assert tokens[1][:2] == [0, 1] and tokens[2][:2] == [0, 1]
    assert computed[2] >= 70 and blocks[2] >= 18
    assert [step.number for step in told] == list(range(1, len(told) + 1))


def test_the_order_is_the_governors(world: Callable[..., World]) -> None:
    w = world(most=2)
    for name in "abcd":
        w.add(name, answer=40)
    w.governor.decide = lambda step: _messages.Decision(step=step.number, order=[4, 3, 2, 1])
    first = w.step()
    assert first == ["a", "b"]  # no decision was heard yet
    for _ in range(3):
        latest = w.step()
    assert latest == ["b", "a"]
    assert w.governor.about["remembers"]
    model = w.scheduler.vllm_config.model_config
    layers, heads = model.get_total_num_hidden_layers(), model.get_total_num_kv_heads()
    assert w.governor.about["block_bytes"] == layers * heads * 2 * BLOCK * 8 * 4  # keys and values of float32
    w.governor.decide = lambda step: _messages.Decision(step=step.number, order_stays=True)
    for _ in range(3):
        latest = w.step()
    assert latest == ["b", "a"]
    w.scheduler.finish_requests(["a"], governed_finish())
    for _ in range(3):
        latest = w.step()
    assert set(latest) == {"d", "b"}, "d was let in before c"


def governed_finish() -> Any:
    from vllm.v1.request import RequestStatus

    return RequestStatus.FINISHED_ABORTED


def test_a_pause_keeps_slot_and_blocks(world: Callable[..., World]) -> None:
    w = world()
    for name in "ab":
        w.add(name, answer=60)
    for _ in range(3):
        w.step()
    a = w.scheduler.requests["a"]
    number = w.governor.number("a")
    w.governor.decide = lambda step: _messages.Decision(step=step.number, pause=[number])
    for _ in range(2):
        w.step()
    before = len(w.said["a"]), w.scheduler.kv_cache_manager.get_block_ids("a")
    for _ in range(5):
        assert w.step() == ["b"]
    while w.flying:
        w.land()
    assert a in w.scheduler.running and len(w.said["a"]) <= before[0] + 1
    assert w.scheduler.kv_cache_manager.get_block_ids("a")[0][: len(before[1][0])] == before[1][0]
    w.governor.decide = lambda step: _messages.Decision(step=step.number, resume=[number])
    for _ in range(3):
        latest = w.step()
    assert set(latest) == {"a", "b"}
    while w.scheduler.requests:
        w.step()
    assert w.said == {"a": list(range(60)), "b": list(range(60))}


def test_the_victim_is_the_governors_and_waits_until_it_may(world: Callable[..., World]) -> None:
    w = world()
    for name in "abc":
        w.add(name, answer=40)
    for _ in range(3):
        w.step()
    number = w.governor.number("a")
    decisions = [_messages.Decision(pause=[number], order=[2, 3])]
    decisions[0].preempt.add(sequence=number, reason="test")

    def decide(step: Any) -> Any:
        decision = decisions.pop() if decisions else _messages.Decision(order=[2, 3])
        decision.step = step.number
        return decision

    w.governor.decide = decide
    for _ in range(6):
        latest = w.step()
    a = w.scheduler.requests["a"]
    assert set(latest) == {"b", "c"} and a in w.scheduler.waiting and w.scheduler.counts.preempted == 1
    assert w.scheduler.kv_cache_manager.get_block_ids("a") == ([],)
    assert [s.sequence for step in w.governor.told for s in step.stopped] == [number]
    w.governor.decide = lambda step: _messages.Decision(step=step.number, resume=[number])
    while w.scheduler.requests:
        w.step()
    assert all(said == list(range(40)) for said in w.said.values())


def test_one_that_is_preempted_may_run_at_once(world: Callable[..., World]) -> None:
    w = world()
    if hasattr(w.scheduler, "requires_kv_delivery"):  # since 0.32
        w.scheduler.requires_kv_delivery = True  # of a server whose prompts others wait for
    for name in "ab":
        w.add(name, answer=40)
    for _ in range(3):
        w.step()
    decision = _messages.Decision()
    decision.preempt.add(sequence=w.governor.number("a"), reason="test")
    decisions = [decision]

    def decide(step: Any) -> Any:
        decided = decisions.pop() if decisions else _messages.Decision()
        decided.step = step.number
        return decided

    w.governor.decide = decide
    for _ in range(4):
        w.step()
        cached = w.flying[-1].scheduled_cached_reqs if w.flying else None
        if cached is not None:
            assert all(r in cached.all_token_ids for r in cached.resumed_req_ids), "workers lack its tokens"
            for name, outputs in zip(cached.req_ids, cached.num_output_tokens, strict=True):
                # The workers take so many of its last tokens for its answer.
                if name in cached.resumed_req_ids:
                    assert outputs == len(cached.all_token_ids[name]) - 6, "workers would shift its tokens"
    assert w.scheduler.counts.preempted == 1
    while w.scheduler.requests:
        w.step()
    assert len(w.said["b"]) == 40


def test_many_are_told_in_pieces(world: Callable[..., World], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(governing, "MAX_TOLD_IDS", 1000)
    w = world(length=1024, blocks=4096)
    for number in range(8):
        w.add(f"r{number}", prompt=12, answer=900)
    for _ in range(300):
        w.step()
    w.governor.connections, w.governor.told = 2, []
    for _ in range(12):
        w.step()
    told = w.governor.told
    assert max(sum(len(b.generated) for b in step.begun) for step in told) <= 1000
    assert {b.id for step in told for b in step.begun} == {f"r{number}" for number in range(8)}
    # What is told with a newcomer and what is told as found make up the answer.
    first = next(b for step in told for b in step.begun)
    found = [
        step.tokens[sum(step.counts[:i])]
        for step in told
        for i, number in enumerate(step.sequences)
        if number == first.sequence and step.counts[i]
    ]
    answer = [*first.generated, *found]
    assert answer == list(range(len(answer)))


def test_who_is_last_in_the_order_loses_its_blocks(world: Callable[..., World]) -> None:
    w = world(blocks=12)
    for name in "ab":
        w.add(name, prompt=8, answer=30)
    number = {name: i + 1 for i, name in enumerate("ab")}
    w.governor.decide = lambda step: _messages.Decision(step=step.number, order=[number["b"], number["a"]])
    while not any(step.stopped for step in w.governor.told) and w.scheduler.requests:
        w.step()
    stopped = [s.sequence for step in w.governor.told for s in step.stopped]
    assert stopped[0] == number["a"], "vLLM alone takes the youngest, which is b"
    while w.scheduler.requests:
        w.step()


def test_no_request_stands_still(world: Callable[..., World]) -> None:
    w = world()
    w.add("a", answer=20)
    w.governor.decide = lambda step: _messages.Decision(step=step.number, pause=[1])
    for _ in range(200):
        if not w.scheduler.requests:
            break
        w.step()
    assert not w.scheduler.requests and w.scheduler.counts.released > 0


def test_none_is_preempted_until_one_has_run(world: Callable[..., World]) -> None:
    w = world()
    w.add("a", answer=40)
    for _ in range(3):
        w.step()
    decision = _messages.Decision(step=1)
    decision.preempt.add(sequence=1, reason="test")
    w.governor.decide = lambda step: None
    w.scheduler._governing.release()  # as where no request could run
    w.governor._decisions = [decision]
    assert w.plan() == ["a"] and w.scheduler.counts.preempted == 0
    while w.flying:
        w.land()
    w.governor._decisions = [decision]
    w.plan()
    assert w.scheduler.counts.preempted == 1


def test_a_step_is_told_while_the_next_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where vLLM waits for the model then, and no request has come, ended or lost blocks."""
    w = World(monkeypatch, asynchronous=False)
    told = w.governor.told
    w.add("a", answer=20)
    w.step()
    assert len(told) == 1, "a newcomer is told of at once"
    for steps in (1, 2, 3):
        w.step()
        assert len(told) == steps
    w.governor.decide = lambda step: _messages.Decision(step=step.number, order=[1])
    w.plan()
    w.ask()
    assert len(told) == 4 and not w.scheduler._governing.order
    w.land()
    w.plan()
    assert w.scheduler._governing.order == {"a": 0}, "what was decided meanwhile holds for the next plan"
    # Where vLLM does not ask, it is told with the next step.
    w.land()
    w.plan()
    w.land()
    assert [step.number for step in told] == [1, 2, 3, 4, 5, 6]
    # What has happened since comes behind it.
    w.plan()
    w.scheduler.finish_requests(["a"], governed_finish())
    assert len(told) == 7 and not told[-1].finished
    w.land()
    assert list(told[-1].finished) == [1] and w.scheduler.counts.faults == 0


def test_a_silent_governor_stops_no_request(world: Callable[..., World]) -> None:
    w = world()
    now = [1]
    ours = w.scheduler._governing
    ours._clock = lambda: now[0]
    for name in "ab":
        w.add(name, answer=60)
    number = 1
    w.governor.decide = lambda step: _messages.Decision(step=step.number, pause=[number], order=[2, 1])
    for _ in range(4):
        latest = w.step()
    assert latest == ["b"]
    w.governor.decide = lambda step: None
    for _ in range(3):
        now[0] += governing.SILENCE_NS // 4
        assert w.step() == ["b"], "a word may be late"
    now[0] += governing.SILENCE_NS
    for _ in range(3):
        latest = w.step()
    assert set(latest) == {"a", "b"} and w.scheduler.counts.failed_open == 1 and not ours.order
    # It decides again, and what it has not told again holds.
    w.governor.decide = lambda step: _messages.Decision(step=step.number, pause=[number], order_stays=True)
    for _ in range(3):
        latest = w.step()
    assert latest == ["b"] and ours.order == {"b": 0, "a": 1}
    w.governor.decide = lambda step: _messages.Decision(step=step.number, resume=[number])
    while w.scheduler.requests:
        w.step()
    assert w.said == {"a": list(range(60)), "b": list(range(60))} and w.scheduler.counts.faults == 0


def test_without_a_governor_vllm_plans_alone(world: Callable[..., World]) -> None:
    w = world()
    for name in "ab":
        w.add(name, answer=30)
    w.governor.decide = lambda step: _messages.Decision(step=step.number, pause=[1])
    for _ in range(4):
        w.step()
    w.governor.terms = None
    for _ in range(3):
        latest = w.step()
    assert set(latest) == {"a", "b"} and w.scheduler.counts.alone > 0
    # A new one hears of everybody, and of what they have said.
    w.governor.terms, w.governor.connections, w.governor.told = Terms("test", 0.0, 100, 0, (), False), 2, []
    w.governor.decide = lambda step: _messages.Decision(step=step.number)
    w.step()
    begun = {b.id: len(b.generated) for step in w.governor.told for b in step.begun}
    assert begun.keys() == {"a", "b"} and begun["a"] >= 1
    while w.scheduler.requests:
        w.step()
    assert w.said == {"a": list(range(30)), "b": list(range(30))}


def test_what_is_counted_is_told(
    world: Callable[..., World], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    logging.getLogger("vllm").propagate = True
    w = world()
    w.add("a", answer=40)
    for _ in range(3):
        w.step()
    w.governor.terms = None
    for _ in range(3):
        w.step()
    alone = w.scheduler.counts.alone
    assert alone > 0 and w.scheduler._since.take()["alone"] == alone and not w.scheduler._since.take()
    monkeypatch.setattr(governed_scheduler, "_MINUTE", 0.0)
    caplog.set_level(logging.INFO, logger="vllm.meridian")
    w.step()
    assert any("of the governor" in r.getMessage() and "alone 1" in r.getMessage() for r in caplog.records)


def test_what_is_counted_is_in_the_connectors_stats() -> None:
    connector = Connector.__new__(Connector)
    connector._scheduler = SimpleNamespace(counters=Counters(kept=2))  # type: ignore[assignment]
    counts = Counts(late=3, steps=9)
    connector.tell_counts(Since(counts, GOVERNOR))
    stats = connector.get_kv_connector_stats()
    assert stats is not None and stats.data == {"kept": 2, "governor_late": 3}
    assert stats.reduce()["Governor late"] == 3 and connector.get_kv_connector_stats() is None
    OUTBOX.take_counts()
    OUTBOX.count("hard_cap")
    connector._scheduler = None
    stats = connector.get_kv_connector_stats()
    assert stats is not None and stats.data == {"forced_hard_cap": 1}
    assert connector.get_kv_connector_stats() is None


def test_a_fault_ends_nothing(world: Callable[..., World]) -> None:
    w = world()
    w.add("a", answer=10)

    def decide(step: Any) -> Any:
        raise RuntimeError("test")

    w.governor.decide = decide
    while w.scheduler.requests:
        w.step()
    assert w.said["a"] == list(range(10)) and w.scheduler.counts.faults > 0
