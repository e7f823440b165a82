"""`Scheduler`: vLLM's own, whose order, pauses and victims an agent's governor chooses.

What it stands on, in 0.25.1 and 0.32.0 alike:

- The order of `running` is who gets tokens first, and its end is who loses its blocks.
- A request whose `next_decode_eligible_step` has not come keeps its place and its blocks, and is passed
  over. It may still be the last of `running`, and lose them.
- Who loses its blocks goes to the head of `waiting` and would run in the next step. One that is paused
  is kept out of the queue while vLLM plans.

Whatever goes wrong here, vLLM plans as it would alone, and it is counted.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from vllm.v1.core.sched.async_scheduler import AsyncScheduler as _AsyncScheduler
from vllm.v1.core.sched.request_queue import SchedulingPolicy
from vllm.v1.core.sched.scheduler import Scheduler as _Scheduler
from vllm.v1.request import RequestStatus

from meridian.door import Steps
from meridian.vllm.counters import GOVERNOR, Since
from meridian.vllm.governing import NEVER, Counts, Governing
from meridian.vllm.settings import door_of, governor_wait_of
from meridian.vllm.xargs import SEQUENCE

if TYPE_CHECKING:

    class _Base(Any):  # type: ignore[misc]
        """One of vLLM's schedulers."""

        running: list[Any]

else:
    _Base = object

_log: Final = logging.getLogger("vllm.meridian")  # below vLLM's own, so that it is written where vLLM writes


_MINUTE: Final = 60.0


class _Guard:
    """Lets no fault of this module end the engine. It is no generator because it is entered in every step."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._told = False

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if error is None or not isinstance(error, Exception):
            return False
        self._counts.faults += 1
        if not self._told:
            self._told = True
            _log.error("meridian: the governed scheduler is at fault; vLLM plans by itself", exc_info=error)
        return True


class _Governed(_Base):
    """What is added to either of vLLM's schedulers."""

    _defers = False
    """Whether a step is told while the next one is computed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._paused_now: dict[str, Any] = {}
        """Requests whose eligible step was moved, by what it was."""
        self._arranged: list[Any] = []
        """Who ran, as arranged last; it is not done again while they and the order stay the same."""
        self._arranged_by: dict[str, int] | None = None
        config = self.vllm_config
        socket, engine = door_of(config)
        caches = self.kv_cache_config
        # Of one group of layers blocks can be told; more have several tables for each request.
        self._tells_blocks = len(caches.kv_cache_groups) == 1
        self._governing = Governing(
            Steps(
                socket,
                engine,
                model=str(config.model_config.served_model_name or config.model_config.model),
                blocks=caches.num_blocks if self._tells_blocks else 0,
                block_tokens=self.block_size,
                block_bytes=_block_bytes(config, caches, self.block_size) if self._tells_blocks else 0,
                max_running=self.max_num_running_reqs,
                step_tokens=self.max_num_scheduled_tokens,
                remembers=True,
                software="meridian-vllm-scheduler",
                wait=governor_wait_of(config),
            )
        )
        self._guard = _Guard(self._governing.counts)
        self._since = Since(self._governing.counts, GOVERNOR)
        self._tells_counts = hasattr(self.connector, "tell_counts")
        """Whether they stand in vLLM's metrics."""
        if self._tells_counts:
            self.connector.tell_counts(self._since)
        self._said = time.monotonic()
        # Those that lost their blocks while a step computes a token of theirs. Before 0.32 vLLM counts that
        # token as theirs already: were they planned before it lands, the workers would take the tokens
        # of their answers one place too far to the left.
        self._victims: list[Any] = []
        self._allocates_ahead = False
        self._allocate_slots = self.kv_cache_manager.allocate_slots
        with self._guard:
            hold = getattr(self.connector, "hold_blocks_in", None)
            if hold is not None and self._tells_blocks and hold(self.kv_cache_manager.block_pool):
                self._allocates_ahead = True
                self.kv_cache_manager.allocate_slots = self._allocate
        _log.info(
            "meridian: engine %s tells the agent at %s of its steps; scheduling is %s",
            engine,
            socket,
            "asynchronous" if isinstance(self, _AsyncScheduler) else "synchronous",
        )

    @property
    def counts(self) -> Counts:
        """What became of decisions."""
        return self._governing.counts

    # What vLLM calls.

    def add_request(self, request: Any) -> None:
        with self._guard:
            if request.request_id not in self.requests:
                number = self._governing.begun(request)
                params = request.sampling_params
                if params is not None:  # the workers' logits processors know a request by nothing else
                    params.extra_args = {**(params.extra_args or {}), SEQUENCE: number}
        super().add_request(request)

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        held: list[Any] = []
        landing: list[Any] = []
        with self._guard:
            held = self._obey()
        with self._guard:
            if self._victims:
                landing = [v for v in self._victims if v in self.waiting]
                self.waiting.remove_requests(landing)
        try:
            output = super().schedule(*args, **kwargs)
        finally:
            for victim in reversed(landing):
                self.waiting.prepend_request(victim)
            if held:
                self.waiting.extendleft(reversed(held))
        with self._guard:
            self._governing.planned(self._new_blocks(output) if self._tells_blocks else ())
            if output.total_num_scheduled_tokens == 0 and self._governing.paused:
                self._governing.release()
        return output

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        with self._guard:
            self._governing.computed(
                scheduler_output.num_scheduled_tokens,
                {
                    output.request_id: output.new_token_ids
                    for client in outputs.values()
                    for output in client.outputs
                    if output.new_token_ids
                },
                running=len(self.running),
                waiting=len(self.waiting),
                free_blocks=self.kv_cache_manager.block_pool.get_num_free_blocks(),
                defer=self._defers,
            )
            if not self._tells_counts:
                self._say_counts(time.monotonic())
        return outputs

    def get_grammar_bitmask(self, scheduler_output: Any) -> Any:
        """Speak with the agent: vLLM asks for this when workers have a step, before it waits for them."""
        with self._guard:
            if self._governing.owes:
                self._governing.exchange()
        return super().get_grammar_bitmask(scheduler_output)

    def _preempt_request(self, request: Any, *args: Any, **kwargs: Any) -> None:
        with self._guard:
            if self._allocates_ahead:
                self.connector.lost_blocks(request.request_id)
        super()._preempt_request(request, *args, **kwargs)
        with self._guard:
            self._governing.stopped(request)

    def _free_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        with self._guard:
            self._governing.finished(request)
            self._paused_now.pop(request.request_id, None)
        return super()._free_request(request, *args, **kwargs)

    def _say_counts(self, now: float) -> None:
        """Log what was counted, once a minute if there is something: without a connector no metric has it."""
        if now < self._said + _MINUTE:
            return
        self._said = now
        if counted := self._since.take():
            said = ", ".join(f"{name} {count}" for name, count in counted.items())
            _log.info("meridian: of the governor, since the last time: %s", said)

    def shutdown(self) -> None:
        with self._guard:
            self._governing.close()
        super().shutdown()

    # Prompts that are offered before they are computed.

    def _allocate(self, request: Any, num_new_tokens: int, **how: Any) -> Any:
        """Give a request blocks, and a prompt that is promised to a decode server all of them at once.

        vLLM would give it those of a chunk with the step that computes it, and an offer names all.
        """
        ahead = 0
        with self._guard:
            ahead = self._tokens_ahead(request, num_new_tokens, how)
        if ahead > how.get("num_lookahead_tokens", 0):
            blocks = self._allocate_slots(request, num_new_tokens, **{**how, "num_lookahead_tokens": ahead})
            if blocks is not None:
                return blocks
        return self._allocate_slots(request, num_new_tokens, **how)

    def _tokens_ahead(self, request: Any, num_new_tokens: int, how: dict[str, Any]) -> int:
        """Return for how many tokens after these a request is to get blocks already."""
        if num_new_tokens == 0 or how.get("delay_cache_blocks"):
            return 0  # its cache is on its way here
        computed = (
            request.num_computed_tokens
            + how.get("num_new_computed_tokens", 0)
            + how.get("num_external_computed_tokens", 0)
        )
        ahead = request.num_prompt_tokens - computed - num_new_tokens
        return ahead if ahead > 0 and self.connector.wants_all_blocks(request) else 0

    # What is made of decisions.

    def _obey(self) -> list[Any]:
        """Arrange what vLLM plans by, and return those of the queue that it is not to see."""
        governing = self._governing
        for victim in governing.listen():
            self._take_blocks(victim)
        if self._victims:
            self._victims = [
                v
                for v in self._victims
                if v.status == RequestStatus.PREEMPTED and v.num_output_placeholders > 0
            ]
        if governing.paused or self._paused_now:
            self._pause(governing.paused)
        if not governing.order and not governing.paused:
            return []
        if governing.order is not self._arranged_by or governing.paused or self.running != self._arranged:
            self.running = governing.arranged(self.running)
            self._arranged, self._arranged_by = self.running.copy(), governing.order
        waiting = self.waiting
        if not waiting or self.policy != SchedulingPolicy.FCFS or not isinstance(waiting, deque):
            return []  # priorities are the users' own order
        arranged = governing.arranged(waiting)
        held = [r for r in arranged if r.request_id in governing.paused]
        waiting.clear()
        waiting.extend(arranged[: len(arranged) - len(held)])
        return held

    def _pause(self, paused: set[str]) -> None:
        """Let vLLM pass over just these."""
        now = self._paused_now
        for request_id in [r for r in now if r not in paused]:
            eligible = now.pop(request_id)
            if request := self.requests.get(request_id):
                request.next_decode_eligible_step = eligible
        for request_id in paused:
            request = self.requests.get(request_id)
            if request is not None and request.next_decode_eligible_step != NEVER:
                now[request_id] = request.next_decode_eligible_step
                request.next_decode_eligible_step = NEVER

    def _take_blocks(self, victim: Any) -> None:
        """Preempt a request between two steps, as vLLM does within one."""
        if victim.status != RequestStatus.RUNNING or victim not in self.running:
            return
        how = (
            {"drop_stale_output": self.requires_kv_delivery} if hasattr(self, "requires_kv_delivery") else {}
        )
        self.running.remove(victim)
        try:
            self._preempt_request(
                victim, time.monotonic(), **how
            )  # since 0.32 it is told what its output is worth
        except Exception:
            if victim.status == RequestStatus.RUNNING:
                self.running.append(victim)
            raise
        # It may run in the step that is planned now. The workers must not take it for one that went on.
        self.prev_step_scheduled_req_ids.discard(victim.request_id)
        self._governing.counts.preempted += 1
        self._victims.append(victim)

    def _new_blocks(self, output: Any) -> list[tuple[str, list[int]]]:
        new = [(new.req_id, new.block_ids[0]) for new in output.scheduled_new_reqs]
        cached = output.scheduled_cached_reqs
        given = cached.new_block_ids
        if given.count(None) < len(given):
            new += [
                (request_id, blocks[0])
                for request_id, blocks in zip(cached.req_ids, given, strict=True)
                if blocks is not None
            ]
        return new


def _block_bytes(config: Any, caches: Any, block_tokens: int) -> int:
    """Return what a block takes of the memory of all ranks; 0: that is not known.

    vLLM says what it takes of a layer of one rank, which has its share of the heads, or with MLA all of
    the one latent.
    """
    try:
        spec, model = caches.kv_cache_groups[0].kv_cache_spec, config.model_config
        if spec.block_size != block_tokens or not spec.num_kv_heads:
            return 0
        ranks = 1 if model.use_mla else model.get_total_num_kv_heads() // spec.num_kv_heads
        total: int = model.get_total_num_hidden_layers() * spec.page_size_bytes * ranks
    except (AttributeError, IndexError, TypeError):  # another vLLM's: it is not known
        return 0
    return total


class SyncScheduler(_Governed, _Scheduler):  # type: ignore[misc]
    """For servers that plan a step when the one before is over.

    Their engine has nothing to do while the model computes. An asynchronous one plans and samples
    then, and what it says later comes later: it speaks with the agent at once.
    """

    _defers = True


class Scheduler(_Governed, _AsyncScheduler):  # type: ignore[misc]
    """For `--scheduler-cls meridian.vllm.Scheduler`: the one that the server's configuration wants."""

    def __new__(cls, vllm_config: Any, *args: Any, **kwargs: Any) -> Any:
        if vllm_config.scheduler_config.async_scheduling:
            return super().__new__(cls)
        return SyncScheduler(vllm_config, *args, **kwargs)
