"""Meridian for vLLM: prefill and decode on different servers, every hand-off checked.

`Connector` is a KV connector that vLLM loads by its module's name::

    vllm serve MODEL --kv-transfer-config '{
        "kv_connector": "Connector", "kv_connector_module_path": "meridian.vllm",
        "kv_role": "kv_both", "engine_id": "prefill-0", "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {
            "state_dir": "/var/lib/meridian", "agent": "prefill", "role": "prefill"}}'

`settings` says what the extra configuration may hold. One Connector is with vLLM's
scheduler, and one with each worker::

    engine core                            worker, one for each rank
    ┌───────────────────────────────┐      ┌───────────────────────────┐
    │ scheduler: decides, remembers │ step │ memory: what is lent      │
    │ handoffs:  who waits for what ╪═════►│ reports: what vLLM hears  │
    │ Door(control)                 │      │ Door(rank)                │
    └───────╥───────────────────────┘      └───────╥───────────────────┘
            ╚══════════ the agent of this host ════╝

vLLM hears of completions from workers alone, while requests are known to the
connector's scheduler. So that tells the workers with every step which requests
have ended, and they report just those; a worker that heard from the agent
itself that a cache is there reports it sooner. Either way once.

A prompt is offered when its request ends: only then does vLLM hand out what a
connector says of it, the ticket. Where a decode server was promised the cache, and
waits, the prompt is offered with its last step, and goes layer by layer; where `Scheduler` gives
it all blocks at once, with its first step, and goes chunk by chunk.

`BudgetLogits` is a logits processor, which vLLM loads by `--logits-processors meridian.vllm:BudgetLogits`:
it ends thoughts that have gone on long enough.

`Scheduler` is vLLM's own, for `--scheduler-cls meridian.vllm.Scheduler`: its agent's governor chooses
who runs, who waits and who gives blocks up.

The package can be imported without vLLM; the three cannot.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meridian.vllm.budget_logits import BudgetLogits
    from meridian.vllm.connector import Connector
    from meridian.vllm.governed_scheduler import Scheduler

__all__ = ["BudgetLogits", "Connector", "Scheduler"]


def __getattr__(name: str) -> object:
    if name == "Connector":
        from meridian.vllm.connector import Connector

        return Connector
    if name == "BudgetLogits":
        from meridian.vllm.budget_logits import BudgetLogits

        return BudgetLogits
    if name == "Scheduler":
        from meridian.vllm.governed_scheduler import Scheduler

        return Scheduler
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
