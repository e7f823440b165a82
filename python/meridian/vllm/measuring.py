"""How what a worker measures comes to the governor, and what the governor says comes to the worker.

The scheduler is in another process and never sees a logit. So the first rank has a connection
for steps of its own, over which the entropies of its rows go, each with the scheduler's number of
the request and the token's place in its answer. On a CPU they go before the token is known to the
scheduler; on a GPU with the next step, because no part of vLLM waits for them there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from meridian._thought import Reason, Terms
from meridian.door import Steps, _messages
from meridian.vllm.settings import door_of

_TOLD: Final = {Reason.CONVERGED: 1, Reason.OVERTHINKING: 2, Reason.HARD_CAP: 3}
"""Numbers of ForceReason."""


class Measuring:
    """A connection that measures. One thread has it, and nothing in it waits."""

    def __init__(self, steps: Steps, ranks: int = 1) -> None:
        """Tell over a connection, of one of so many ranks that sample the same tokens."""
        self._steps = steps
        self._ranks = ranks
        self._connection = 0
        self._number = 0

    @classmethod
    def of(cls, vllm_config: Any) -> Measuring | None:
        """Return one where the server's scheduler is governed, and this process is its first rank's."""
        scheduler = vllm_config.scheduler_config.scheduler_cls
        if not isinstance(scheduler, str) or not scheduler.startswith("meridian.vllm") or not _first_rank():
            return None
        socket, engine = door_of(vllm_config)
        model = vllm_config.model_config
        name = str(model.served_model_name or model.model)
        steps = Steps(socket, engine, model=name, measures=True, forces=True)
        return cls(steps, vllm_config.parallel_config.tensor_parallel_size)

    def tell(
        self,
        measured: list[tuple[int | None, int, float]],
        forced: Iterable[tuple[int | None, Reason]] = (),
    ) -> None:
        """Tell entropies (the number of a request, the place of a token, nats), and ends that are forced."""
        numbered = [each for each in measured if each[0] is not None]
        ended = [(number, _TOLD[reason]) for number, reason in forced if number is not None]
        self._steps.advance()
        if not (numbered or ended) or not self._steps.governed:
            return
        self._number += 1
        step = _messages.Step(number=self._number)
        if numbered:
            sequences, places, nats = zip(*numbered, strict=True)
            step.sequences.extend(sequences)
            step.counts.extend([1] * len(numbered))
            step.places.extend(places)
            step.entropies.extend(nats)
        for number, reason in ended:
            step.forced.append(number)
            step.forced_for.append(reason)
        self._steps.send(step)

    def terms(self, now: Terms) -> Terms | None:
        """Return the terms that a governor has set since the last call; None: none did.

        Where several ranks sample, each for itself, all must go by the same terms at the same token:
        then those of the configuration stay.
        """
        told = self._steps.terms
        if self._ranks > 1 or told is None or self._connection == self._steps.connections:
            return None
        self._connection = self._steps.connections
        if not told.end_tokens:  # it does not know how this model thinks
            return None
        return replace(
            now,
            max_think_tokens=told.max_think_tokens or now.max_think_tokens,
            min_think_tokens=told.min_think_tokens,
            entropy=told.entropy,
        )


def _first_rank() -> bool:
    """Say whether the ranks beside this one measure the same."""
    from vllm.distributed import parallel_state

    if not parallel_state.model_parallel_is_initialized():
        return True
    return bool(parallel_state.get_tensor_model_parallel_rank() == 0)
