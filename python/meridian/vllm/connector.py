"""What vLLM loads."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any, Final

from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorWorkerMetadata,
    SupportsHMA,
)
from vllm.v1.request import RequestStatus

from meridian.config import load_config
from meridian.door import Control, Door, DoorError, Rank
from meridian.vllm.counters import Since
from meridian.vllm.ended_thoughts import EndedThoughts, settled_after
from meridian.vllm.engine_config import Model
from meridian.vllm.forced_ends import OUTBOX, Heard
from meridian.vllm.gpu import exported, load_driver, record_event
from meridian.vllm.handoffs import Step
from meridian.vllm.memory import Cache
from meridian.vllm.progress import Progress
from meridian.vllm.reports import Report
from meridian.vllm.scheduler import ConnectorScheduler
from meridian.vllm.settings import Role, Settings
from meridian.vllm.stats import Metrics, Stats
from meridian.vllm.think_markers import ends_of
from meridian.vllm.weight_changes import follow_vllm, is_empty
from meridian.vllm.worker import ConnectorWorker

try:
    from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorTransferResults
except ImportError:  # an older vLLM, as 0.25: a failed load is told by its blocks alone
    KVConnectorTransferResults = None

# Heads before tokens, by the name that this vLLM has for it: on a CPU it packs the cache within a head.
_LAYOUT: Final = "LBHNC" if find_spec("vllm.v1.kv_cache_layout") else "HND"

_CLOSING: Final = 5.0
"""How long an agent that hangs may delay the end of a process, in seconds."""

_AHEAD: Final = (
    "with asynchronous scheduling, pipeline stages or micro-batches vLLM begins a step before it has heard "
    "that the one before is computed, and could take blocks of what is offered; --no-async-scheduling, one "
    "stage and no micro-batches let them move meanwhile"
)

_log: Final = logging.getLogger("meridian.vllm")


class Orders(KVConnectorMetadata):  # type: ignore[misc]
    """A step, on its way from the connector's scheduler to the workers'."""

    def __init__(self, step: Step) -> None:
        self.step = step


class ForcedEnds(KVConnectorWorkerMetadata):  # type: ignore[misc]
    """Whose thoughts a worker has ended in a step, and why, on the way to the connector's scheduler."""

    def __init__(self, reasons: dict[str, str]) -> None:
        self.reasons = reasons

    def aggregate(self, other: KVConnectorWorkerMetadata) -> ForcedEnds:
        """Take in what another rank tells, which samples the same tokens."""
        return ForcedEnds({**other.reasons, **self.reasons}) if isinstance(other, ForcedEnds) else self


class Connector(KVConnectorBase_V1, SupportsHMA):  # type: ignore[misc]
    """Hands KV caches off between vLLM servers, through the agents of their hosts."""

    _governor: Since | None = None
    _role: Role = "both"
    _first_rank = True
    """Whether what is sampled here is counted: the other ranks sample the same."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        _log_like_vllm()
        self._settings = Settings.read(self._kv_transfer_config.kv_connector_extra_config)
        self._model = Model(vllm_config, kv_cache_config)
        self._door: Door | None = None
        self._scheduler: ConnectorScheduler | None = None
        self._worker: ConnectorWorker | None = None
        self._pool: Any = None
        self._indexes: dict[str, int] = {}
        self._forced_ends = Heard()
        if role is KVConnectorRole.SCHEDULER:
            self._open_control()

    def _open_control(self) -> None:
        cut = self._model.cut()
        config, settings = self._kv_transfer_config, self._settings
        self._role = settings.role_within(config.kv_role)
        produces, consumes = self._role != "decode", self._role != "prefill"
        if consumes and not cut.blocks_tell_whose and KVConnectorTransferResults is None:
            consumes = False
            _log.warning(
                "this vLLM cannot hear of failed loads where a model has several groups of layers, or "
                "sliding windows: none is tried, and prompts are computed here"
            )
        if settings.cache and getattr(config, "kv_load_failure_policy", "recompute") != "recompute":
            settings = dataclasses.replace(settings, cache=False)
            _log.warning(
                "the cell's shared cache is not used: with kv_load_failure_policy fail, a prefix that does "
                "not come would end its request; set it to recompute"
            )
        if settings.cache and not self._model.prefixes_stand_alone:
            settings = dataclasses.replace(settings, cache=False)
            _log.warning(
                "the cell's shared cache is not used: of this model what is computed of a prompt's beginning "
                "depends on how it goes on"
            )
        if not self._model.names_media:
            _log.warning(
                "requests with pictures or sounds are computed here and shared with no other server: where "
                "neither prompts nor media are cached, vLLM does not say which they have "
                "(--enable-prefix-caching, or --mm-processor-cache-gb over 0)"
            )
        finds = config.is_kv_consumer or self._model.one_step_at_a_time
        if settings.cache and not finds:
            _log.warning(
                "prefixes are kept, and none of the cell's shared cache is looked for: with kv_role %s "
                "vLLM may still write blocks into which one would be loaded; say kv_both, and role: %s "
                "in kv_connector_extra_config",
                config.kv_role,
                self._role,
            )
        if produces and not self._model.one_step_at_a_time:
            _log.info("prompts are offered when they are computed, not while they are: %s", _AHEAD)
        scheduler = ConnectorScheduler(
            settings,
            cut,
            produces=produces,
            consumes=consumes,
            finds=finds,
            by_layers=self._model.one_step_at_a_time,
            names_media=self._model.names_media,
        )
        door = Door(
            self._settings.socket,
            config.engine_id,
            control=Control(settings.url, self._role, self._model.name),
            on_event=scheduler.happened,
        )
        if not follow_vllm():
            _log.warning(
                "this vLLM does not tell when its weights change: after any change reset its prefix cache "
                "with the connector's, or KV of other weights is handed off and found"
            )
        self._open(door)
        door.publish(cut.publication)
        scheduler.attach(door)
        self._scheduler = scheduler

    def _open(self, door: Door) -> None:
        self._door = door
        door.open(required=self._settings.agent_required)

    # What vLLM's scheduler calls.

    def bind_gpu_block_pool(self, gpu_block_pool: Any) -> None:
        """Take vLLM's blocks, which it tells once they are there."""
        self._pool = gpu_block_pool
        if self._scheduler is not None and KVConnectorTransferResults is not None:
            self._scheduler.hold_doubtful_in(gpu_block_pool)
        keeps = self._settings.keep_thoughts
        if self._scheduler is None or keeps == "never":
            return
        config = load_config()
        self._scheduler.keep_thoughts(
            EndedThoughts(
                ends_of(self._vllm_config, config),
                block_tokens=self._model.cut().publication.block_tokens,
                batch=config.disagg.offload_threshold_blocks,
                pool=gpu_block_pool,
                under_pressure=keeps == "pressure",
                settled_after=settled_after(self._vllm_config),
            )
        )

    def on_new_request(self, request: Any) -> None:
        """Look at a request before vLLM does, whose own look at what is no object would end its engine."""
        if not isinstance(request.kv_transfer_params, dict | None):
            request.kv_transfer_params = None

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
        assert self._scheduler is not None
        try:
            return self._scheduler.matched_tokens(request, num_computed_tokens)
        except Exception:  # it would end vLLM's engine
            self._scheduler.at_fault("what could come from elsewhere is computed here")
            return 0, False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        assert self._scheduler is not None
        self._scheduler.allocated(request, blocks.get_block_ids(), num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        assert self._scheduler is not None
        early_offers, thoughts = self._scheduler.early_offers, self._scheduler.thoughts
        if early_offers:  # else no request of the step is looked at
            for request, had, new, new_block_ids in _computed(scheduler_output):
                early_offers.scheduled(request, had + new, new_block_ids)
        if thoughts is not None:
            try:
                for request, had, _, new_block_ids in _computed(scheduler_output):
                    thoughts.follow(request, had, new_block_ids, self._scheduler.keep_running)
            except Exception:  # it would end vLLM's engine
                thoughts.stop()
                self._scheduler.at_fault("thoughts stay where they are from here on")
        idle = scheduler_output.total_num_scheduled_tokens == 0
        return Orders(self._scheduler.step(idle=idle, computes=scheduler_output.num_scheduled_tokens))

    def update_connector_output(self, connector_output: Any) -> None:
        assert self._scheduler is not None
        self._scheduler.reported(connector_output.finished_recving or ())
        if isinstance(told := connector_output.kv_connector_worker_meta, ForcedEnds):
            self._forced_ends.hear(told.reasons)

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        return self.request_finished_all_groups(request, (block_ids,))

    def request_finished_all_groups(
        self, request: Any, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        assert self._scheduler is not None
        self._forced_ends.finish(request)
        complete = request.status in (RequestStatus.FINISHED_LENGTH_CAPPED, RequestStatus.FINISHED_STOPPED)
        return self._scheduler.finished(request, block_ids, complete=complete)

    def has_pending_push_work(self) -> bool:
        """Keep vLLM stepping until blocks that are held for an agent are its own again."""
        return self._scheduler is not None and self._scheduler.awaits_blocks

    def has_pending_block_frees(self) -> bool:
        """Say whether blocks come back in a moment, so that vLLM need not take another request's."""
        return self._scheduler is not None and self._scheduler.early_offers.expects_blocks

    # What `meridian.vllm.Scheduler` asks besides.

    def hold_blocks_in(self, pool: Any) -> bool:
        assert self._scheduler is not None
        holds = self._scheduler.early_offers.hold_blocks_in(pool)
        if holds and self._role != "decode" and self._model.one_step_at_a_time:
            _log.info(
                "prompts that are promised move chunk by chunk, as many at a time as have %d tokens in all; "
                "what does not fit is offered with its last chunk",
                self._scheduler.early_offers.most_held_tokens,
            )
        return holds

    def wants_all_blocks(self, request: Any) -> bool:
        assert self._scheduler is not None
        return self._scheduler.early_offers.wants_all_blocks(request)

    def tell_counts(self, governor: Since) -> None:
        """Have what a governed scheduler counts stand in vLLM's metrics."""
        self._governor = governor

    def lost_blocks(self, request: str) -> None:
        assert self._scheduler is not None
        self._scheduler.early_offers.lost_blocks(request)

    def reset_cache(self) -> bool | None:
        """Find nothing any more of what was kept until now: vLLM asks with a reset of its own cache."""
        if self._scheduler is not None:
            self._scheduler.reset(empty=self._is_empty())
        return True

    # What vLLM's engine tells of its weights.

    def weights_change(self, by: str) -> None:
        if self._scheduler is not None:
            self._scheduler.weights_change(by, empty=self._is_empty())

    def weights_named(self, version: str) -> None:
        if self._scheduler is not None:
            self._scheduler.weights_named(version)

    def adapter_loads(self, lora: Any) -> None:
        if self._scheduler is not None:
            self._scheduler.adapter_loads(lora, empty=self._is_empty())

    def adapter_loaded(self, lora: Any) -> None:
        if self._scheduler is not None:
            self._scheduler.adapter_loaded(lora)

    def cache_resets(self) -> None:
        if self._scheduler is not None:
            self._scheduler.cache_resets()

    def cache_was_reset(self, done: bool) -> None:
        if self._scheduler is not None:
            self._scheduler.cache_was_reset(done=done)

    def _is_empty(self) -> bool:
        """Say whether vLLM has nothing of what it has computed."""
        assert self._scheduler is not None
        return self._pool is not None and is_empty(self._pool, self._scheduler.doubtful_blocks)

    def get_loaded_kv_cache_group_ids(self, request: Any) -> tuple[int, ...]:
        return tuple(range(len(self._kv_cache_config.kv_cache_groups)))

    # What vLLM's worker calls.

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        from vllm.distributed.parallel_state import get_pp_group, get_tp_group

        layers, shares = self._model.share()
        cache = Cache(layers, shares, self._model.layout, kv_caches)
        lent, on_gpu = cache.regions(), cache.kind == "cuda"
        on_loan = exported(lent, load_driver()) if on_gpu else []
        index = get_pp_group().rank_in_group * self._model.tp + get_tp_group().rank_in_group
        self._first_rank = get_tp_group().rank_in_group == 0
        engine = self._kv_transfer_config.engine_id
        door = Door(self._settings.socket, engine, rank=Rank(index, self._model.ranks))
        self._open(door)
        self._indexes = {layer.name: layer.index for layer in layers}
        self._worker = ConnectorWorker(door, len(layers), Progress(record_event) if on_gpu else None)
        if on_gpu:
            self._worker.lend_gpu(on_loan)
        else:
            self._worker.lend(lent)

    def bind_connector_metadata(self, connector_metadata: KVConnectorMetadata) -> None:
        super().bind_connector_metadata(connector_metadata)
        OUTBOX.begin()
        if self._worker is not None and isinstance(connector_metadata, Orders):
            self._worker.told(connector_metadata.step)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Do nothing: the connector's scheduler has asked for what is to be loaded."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Do nothing: a request runs when all of its cache is there."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        """Tell how far the step is; what is offered stays where it is."""
        index = self._indexes.get(layer_name)
        if self._worker is not None and index is not None:
            self._worker.saved(index)

    def wait_for_save(self) -> None:
        """Do nothing: what is offered stays where it is."""

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        report = self._report()
        return report.sent or None, report.received or None

    def get_transfer_results(self, finished_req_ids: set[str]) -> Any:
        report = self._report()
        return KVConnectorTransferResults(
            finished_sending=report.sent, finished_recving=report.received, failed_recving=report.failed
        )

    def build_connector_worker_meta(self) -> ForcedEnds | None:
        return ForcedEnds(OUTBOX.give()) if OUTBOX.used else None

    def _report(self) -> Report:
        return self._worker.report() if self._worker is not None else Report()

    def get_block_ids_with_load_errors(self) -> set[int]:
        return self._worker.take_invalid_blocks() if self._worker is not None else set()

    # Both.

    def get_kv_connector_stats(self) -> Stats | None:
        if self._scheduler is None:
            ended = OUTBOX.take_counts() if self._first_rank else {}
            counted: dict[str, Any] = {f"forced_{why}": count for why, count in ended.items()}
        else:
            counted = self._scheduler.counters.take()
            if self._governor is not None:
                counted |= {f"governor_{name}": count for name, count in self._governor.take().items()}
        return Stats(data=counted) if counted else None

    def shutdown(self) -> None:
        if self._worker is not None:
            self._worker.close(_CLOSING)
        if self._door is not None:
            with contextlib.suppress(DoorError):  # the end of the process ends it
                self._door.close(_CLOSING)

    @classmethod
    def get_required_kvcache_layout(cls, vllm_config: Any) -> str | None:
        from vllm.platforms import current_platform

        return _LAYOUT if current_platform.is_cpu() else None

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> Stats | None:
        return Stats(data=data or {})

    @classmethod
    def build_prom_metrics(
        cls, vllm_config: Any, metric_types: Any, labelnames: list[str], per_engine_labelvalues: Any
    ) -> Metrics:
        return Metrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)


with contextlib.suppress(ValueError):  # it is known already
    # By this name, and no module's, a MultiConnector finds who reads what is counted.
    KVConnectorFactory.register_connector(Connector.__name__, __name__, Connector.__name__)


def _computed(output: Any) -> Iterator[tuple[str, int, int, Sequence[Sequence[int]] | None]]:
    """Go through what a step computes: the request, tokens that it had and gets, blocks that it got for that.

    Of requests that begin, or begin again, blocks were told with their allocation.
    """
    counts: dict[str, int] = output.num_scheduled_tokens
    for new in output.scheduled_new_reqs:
        yield new.req_id, new.num_computed_tokens, counts[new.req_id], None
    cached = output.scheduled_cached_reqs
    for request, had, blocks in zip(
        cached.req_ids, cached.num_computed_tokens, cached.new_block_ids, strict=True
    ):
        yield request, had, counts[request], None if request in cached.resumed_req_ids else blocks


def _log_like_vllm() -> None:
    """Write what this package logs where vLLM writes its own."""
    ours, theirs = logging.getLogger("meridian"), logging.getLogger("vllm")
    if not ours.handlers:
        ours.handlers = list(theirs.handlers)
        ours.setLevel(theirs.level)
        ours.propagate = False
