"""Hand-offs in vLLM's logs and metrics."""

from __future__ import annotations

from typing import Any, Final

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics, KVConnectorStats
from vllm.v1.metrics.utils import create_metric_per_engine

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_TOKENS: Final = tuple(4**i for i in range(2, 11))
_HISTOGRAMS: Final = {
    "ready_seconds": ("handoff_seconds", "From asking for a prompt's cache until it was there.", _SECONDS),
    "ready_tokens": ("handoff_tokens", "Tokens that came with a hand-off.", _TOKENS),
}
_COUNTERS: Final = {
    "failed": ("handoffs_failed", "Prompts whose cache did not come, while a client waited for it."),
    "abandoned": ("handoffs_abandoned", "Prompts whose cache was given up, as no client waited for it."),
    "offered": ("offers", "Prompts whose cache was offered, and whose blocks are free again."),
    "ahead": ("offers_ahead", "Prompts whose cache was offered, layer by layer, while it was computed."),
    "chunked": ("offers_chunked", "Prompts whose cache was offered before their last chunk was computed."),
    "declined": ("offers_declined", "Prompts whose cache could not be offered."),
    "found_tokens": ("found_tokens", "Tokens of prompts that came from the cell's cache."),
    "recalled_tokens": (
        "recalled_tokens",
        "Tokens that came from the cell's cache for requests that had lost their blocks.",
    ),
    "kept_thoughts": ("kept_thoughts", "Thoughts that the agent has taken while their requests went on."),
    "kept": ("kept", "Requests whose cache the cell has, after it was asked to keep it."),
    "not_kept": ("not_kept", "Requests whose cache the cell was asked to keep, and has not taken."),
    "governor_late": ("governor_late", "Plans that were made without the governor's decision that was due."),
    "governor_alone": ("governor_alone", "Steps that no governor heard of."),
    "governor_failed_open": ("governor_failed_open", "Times that a governor was there and did not decide."),
    "governor_released": ("governor_released", "Pauses that were lifted because no other request could run."),
    "governor_preempted": ("governor_preempted", "Requests whose blocks the governor took."),
    "governor_faults": ("governor_faults", "Faults of the governed scheduler; vLLM plans by itself then."),
    "forced_hard_cap": ("governor_forced_hard_cap", "Thoughts that were ended at their cap."),
    "forced_overthinking": (
        "governor_forced_overthinking",
        "Thoughts that were ended as they lost their way.",
    ),
}


_GAUGES: Final = {
    "doubtful_blocks": (
        "blocks_in_doubt",
        "Blocks that are out of use, since an agent that says nothing may still write into them.",
    ),
}


class Stats(KVConnectorStats):  # type: ignore[misc]
    """A Counters on its way to vLLM's logger."""

    def reset(self) -> None:
        self.data: dict[str, Any] = {}

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        for name, count in other.data.items():
            self.data[name] = self.data[name] + count if name in self.data else count
        return self

    def reduce(self) -> dict[str, int | float]:
        seconds = sorted(self.data.get("ready_seconds", ()))
        reduced: dict[str, int | float] = {"Hand-offs": len(seconds)}
        if seconds:
            reduced["Median hand-off (ms)"] = round(seconds[len(seconds) // 2] * 1000, 3)
            reduced["Slowest hand-off (ms)"] = round(seconds[-1] * 1000, 3)
            reduced["Tokens handed off"] = sum(self.data["ready_tokens"])
        for name in (*_COUNTERS, *_GAUGES):
            if name in self.data:
                ours = name.startswith(("governor_", "forced_"))
                reduced[name.replace("_", " ").capitalize() if ours else f"Hand-offs {name}"] = self.data[
                    name
                ]
        return reduced

    def is_empty(self) -> bool:
        return not self.data


class Metrics(KVConnectorPromMetrics):  # type: ignore[misc]
    """`vllm:meridian_…` in /metrics."""

    def __init__(
        self, vllm_config: Any, metric_types: Any, labelnames: list[str], per_engine_labelvalues: Any
    ) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)

        def each(metric: Any) -> Any:
            return create_metric_per_engine(metric, per_engine_labelvalues)

        self._histograms = {
            key: each(
                self._histogram_cls(
                    name=f"vllm:meridian_{name}",
                    documentation=text,
                    buckets=list(buckets),
                    labelnames=labelnames,
                )
            )
            for key, (name, text, buckets) in _HISTOGRAMS.items()
        }
        self._counters = {
            key: each(
                self._counter_cls(name=f"vllm:meridian_{name}", documentation=text, labelnames=labelnames)
            )
            for key, (name, text) in _COUNTERS.items()
        }

        self._gauges = {
            key: each(
                self._gauge_cls(
                    name=f"vllm:meridian_{name}",
                    documentation=text,
                    multiprocess_mode="sum",
                    labelnames=labelnames,
                )
            )
            for key, (name, text) in _GAUGES.items()
        }

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        for key, histogram in self._histograms.items():
            for value in transfer_stats_data.get(key, ()):
                histogram[engine_idx].observe(value)
        for key, counter in self._counters.items():
            counter[engine_idx].inc(transfer_stats_data.get(key, 0))
        for key, gauge in self._gauges.items():
            gauge[engine_idx].inc(transfer_stats_data.get(key, 0))  # it is told what has changed
