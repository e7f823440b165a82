"""`BudgetLogits`: thoughts are ended where vLLM samples, at exactly the token that the rule names.

vLLM has two interfaces of logits processors, one for each of its model runners, and this
class has both. What stands in a request is read on the host: vLLM's older runner has the
tokens there; for the newer one they are copied when a step begins, behind the kernels of the
step before, and waited for when its logits come. Entropies go the same way, one step later.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import wraps
from itertools import takewhile
from typing import Any, Final

import torch
from vllm.v1.sample.logits_processor.interface import LogitsProcessor as _RowProcessor
from vllm.v1.sample.logits_processor.interface import MoveDirectionality

from meridian._thought import Reason, Terms
from meridian.config import load_config
from meridian.vllm.entropies import Copied, entropies
from meridian.vllm.forced_ends import OUTBOX, name_of
from meridian.vllm.measuring import Measuring
from meridian.vllm.think_markers import markers_of, tokenizer_of
from meridian.vllm.thoughts import TAIL_TOKENS, Stream
from meridian.vllm.xargs import RequestArgs, sequence_of

try:  # since 0.32
    from vllm.v1.worker.gpu.sample.logits_processor.interface import LogitsProcessor as _SlotProcessor
except ImportError:
    _SlotProcessor = object

_log: Final = logging.getLogger("vllm.meridian")  # below vLLM's own, so that it is written where vLLM writes

MAX_ENTROPIES: Final = 1 << 16
"""Entropies that wait to be taken; the oldest go first."""

MAX_ASIDE: Final = 512
"""Requests outside of the batch that are remembered, some kilobytes each: they wait, or were preempted."""


def _fails_open(method: Callable[..., Any]) -> Callable[..., Any]:
    """A fault of this class ends no engine: it is told, and no thought is ended from then on."""

    @wraps(method)
    def guarded(self: BudgetLogits, *arguments: Any) -> Any:
        if not self.off:
            try:
                return method(self, *arguments)
            except Exception:
                self.off = True
                _log.exception("meridian: BudgetLogits is at fault, and ends no thought from here on")
        return arguments[0] if method.__name__ == "apply" else False

    return guarded


class BudgetLogits(_RowProcessor, _SlotProcessor):  # type: ignore[misc]
    """Ends thoughts, and measures how undecided the model is while it thinks."""

    running: BudgetLogits | None = None
    """The newest of this process."""

    def __init__(self, vllm_config: Any, *rest: Any) -> None:
        """Take `device, is_pin_memory` from the older runner, `req_states` from the newer one."""
        if vllm_config.speculative_config:
            raise ValueError(
                "BudgetLogits does not end thoughts of speculative decoding: "
                "start vLLM without --speculative-config, or without BudgetLogits"
            )
        self._slots: Any = rest[0] if len(rest) == 1 else None
        device = self._slots.device if self._slots else rest[0]
        config = load_config()
        tokenizer = tokenizer_of(vllm_config)
        self._markers = markers_of(vllm_config, config, tokenizer)
        self._boundary = _boundaries(tokenizer)
        self._terms = Terms.of(config)
        self._streams: dict[int, Stream] = {}
        """By the row of the batch, or by the slot of the request."""
        self._aside: dict[object, tuple[Stream, Any]] = {}
        self._outputs: dict[int, list[int]] = {}
        self._new: list[int] = []
        """Slots of requests whose prompts have not been looked at."""
        self._due: dict[int, None] = {}
        """Slots whose newest tokens are not known here: new ones, and those of the last step."""
        self._tokens, self._nats = Copied(device), Copied(device)
        self._measuring: list[tuple[Stream, int]] = []
        self._entropies: deque[tuple[int | None, int, float]] = deque(maxlen=MAX_ENTROPIES)
        self._told_placeholders = False
        self._governor = _governor(vllm_config)
        self.off = False
        """Whether a fault has ended its work."""
        self.forced = dict.fromkeys(("converged", "overthinking", "hard_cap"), 0)
        """Thoughts that were ended, by reason."""
        self.steps, self.seconds = 0, 0.0
        """Calls of `apply`, and what they took on the host."""
        BudgetLogits.running = self
        OUTBOX.used = True
        _log.info(
            "meridian: thoughts end after %d tokens, by %s; entropies %s",
            self._terms.max_think_tokens,
            list(self._markers.force),
            "may end them sooner" if self._terms.entropy else "end none",
        )

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        """Refuse what a client cannot mean: vLLM answers with 400."""
        RequestArgs.from_client(sampling_params.extra_args)

    def is_argmax_invariant(self) -> bool:
        return False

    @property
    def terms(self) -> Terms:
        return self._terms

    def set_terms(self, terms: Terms) -> None:
        """Go by other terms, in thoughts that are under way too."""
        self._terms = terms
        for stream in (*self._streams.values(), *(kept for kept, _ in self._aside.values())):
            stream.set_terms(terms)

    def take_entropies(self) -> list[tuple[int | None, int, float]]:
        """Return what was measured since the last call, in nats.

        Before it stand the scheduler's number of the request, if it gave one, and the token's position
        behind the prompt. Of a position that comes twice, the newest counts.
        """
        taken = list(self._entropies)
        self._entropies.clear()
        return taken

    # The older runner: rows of a batch, and lists of tokens that grow.

    @_fails_open
    def update_state(self, batch_update: Any) -> None:
        if not batch_update:
            return
        for row in batch_update.removed:
            self._set_aside(row)
        for row, params, prompt, output in batch_update.added:
            self._set_aside(row)
            self._streams[row] = self._stream(params, output, prompt or ())
            self._outputs[row] = output
        for a, b, direction in batch_update.moved:
            for table in (self._streams, self._outputs):
                _move(table, a, b, swap=direction == MoveDirectionality.SWAP)

    def _stream(self, params: Any, output: list[int] | None, prompt: Any) -> Stream:
        extra = params.extra_args
        number = sequence_of(extra)
        kept = self._aside.pop(id(output) if number is None else number, None)
        if kept is not None and (number is not None or kept[1] is output):
            return kept[0]
        if number is not None:  # it may have gone on in another slot before its own was taken
            for slot, stream in self._streams.items():
                if stream.number == number:
                    return self._streams.pop(slot)
        try:
            args = RequestArgs.read(extra)
        except ValueError:  # it came past validate_params, and is not worth an engine
            args = RequestArgs()
        stream = Stream(self._markers, self._terms, args, number, self._boundary)
        stream.name = name_of((extra or {}).get("kv_transfer_params"))
        stream.begin(prompt)
        return stream

    def _set_aside(self, row: int) -> None:
        """Keep where a request stands that leaves the batch: it may only be waiting."""
        stream, output = self._streams.pop(row, None), self._outputs.pop(row, None)
        if stream is not None:
            self._aside[id(output) if stream.number is None else stream.number] = stream, output
            if len(self._aside) > MAX_ASIDE:
                del self._aside[next(iter(self._aside))]

    def _follow(self, stream: Stream, output: list[int]) -> bool:
        """Take what was committed since the last step; False: vLLM has not told its newest token."""
        if len(output) < stream.position:
            stream.rewind()  # tokens were dropped with a cache that did not come
        for token in takewhile(lambda token: token >= 0, output[stream.position :]):
            stream.take(token)
        if stream.position == len(output):
            return True
        if not self._told_placeholders:
            self._told_placeholders = True
            _log.error(
                "meridian: vLLM does not tell BudgetLogits the tokens of its requests, so that no thought is "
                "ended: load it by --logits-processors, not by an entry point"
            )
        return False

    # The newer runner: slots of requests, and tokens in the memory of the device.

    @_fails_open
    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        old = self._streams.get(req_idx)
        if old is not None and old.number is not None:
            self._set_aside(req_idx)
        stream = self._stream(sampling_params, None, ())
        self._streams[req_idx] = stream
        if req_idx not in self._new:
            self._new.append(req_idx)
        self._due[req_idx] = None
        return True

    @_fails_open
    def apply_staged_writes(self) -> None:
        """Ask for the newest tokens of the last step's requests, and of a new one for the end of its prompt.

        A request that did not run has none, and vLLM does not tell of slots that are not used any more.
        """
        slots = [slot for slot in self._due if slot in self._streams]
        if not slots:
            return
        state, device = self._slots, self._slots.device
        at = torch.tensor(slots, dtype=torch.int64).to(device, non_blocking=True)
        total = state.total_len.gpu[at].to(torch.int64)
        newest = state.all_token_ids.gpu[at, (total - 1).clamp_(min=0)].to(torch.int64)
        parts = [total, newest]
        if self._new:
            ends = [int(state.prompt_len.np[slot]) for slot in self._new]
            width = self._markers.longest + TAIL_TOKENS
            tails = torch.tensor([range(end - width, end) for end in ends]).clamp_(min=0)
            where, new = (each.to(device, non_blocking=True) for each in (tails, torch.tensor(self._new)))
            parts.append(state.all_token_ids.gpu[new[:, None], where].to(torch.int64).flatten())
        self._tokens.start(torch.cat(parts), (slots, tuple(self._new)))

    def _committed(self) -> None:
        """Follow what `apply_staged_writes` asked for."""
        came = self._tokens.finish()
        if came is None:
            return
        numbers, (slots, new) = came
        width = self._markers.longest + TAIL_TOKENS
        for i, slot in enumerate(new):
            prompt = int(self._slots.prompt_len.np[slot])
            first = 2 * len(slots) + i * width
            tail = numbers[first : first + width][max(0, width - prompt) :]
            stream = self._streams.get(slot)
            if stream is not None and stream.position == 0:
                stream.begin(tail)
        self._new = []
        prompts = self._slots.prompt_len.np[slots].tolist()
        newest = numbers[len(slots) : 2 * len(slots)]
        for slot, prompt, total, token in zip(slots, prompts, numbers, newest, strict=False):
            self._due.pop(slot, None)
            stream = self._streams.get(slot)
            if stream is None:
                continue  # it goes on in another slot
            missing = total - prompt - stream.position
            if missing < 0:
                stream.rewind()  # tokens were dropped with a cache that did not come
                missing = total - prompt
            if missing == 1:
                stream.take(token)
            elif missing > 1:  # it goes on after a preemption
                for each in self._slots.all_token_ids.gpu[slot, total - missing : total].tolist():
                    stream.take(each)

    # Both.

    @_fails_open
    def apply(self, logits: torch.Tensor, ctx: Any = None) -> torch.Tensor:
        began = time.perf_counter()
        self._measured()
        if ctx is not None:
            self._committed()
            self._due.update(dict.fromkeys(ctx.idx_mapping_np.tolist()))
        force: list[tuple[int, int]] = []
        ended: list[tuple[int | None, Reason]] = []
        measure: list[int] = []
        self._measuring = []
        rows = len(logits)
        for row, stream in self._rows(ctx):
            if row >= rows or not stream.thinking:
                continue
            ended_before = stream.reason
            if (wanted := stream.wanted()) is not None:
                force.append((row, wanted))
                if stream.reason is not ended_before:
                    self.forced[stream.reason.value] += 1
                    ended.append((stream.number, stream.reason))
                    OUTBOX.count(stream.reason.value)
                    if stream.name:
                        OUTBOX.add(stream.name, stream.reason.value)
            elif stream.thought.terms.entropy:
                measure.append(row)
                self._measuring.append((stream, stream.position))
        if measure:
            self._nats.start(entropies(logits, measure), None)
            if logits.device.type == "cpu":
                self._measured()  # they are here already
        if self._governor is not None:
            self._governor.tell(self.take_entropies(), ended)
            if (terms := self._governor.terms(self._terms)) is not None:
                self.set_terms(terms)
        if force:
            which, ids = torch.tensor(force).to(logits.device, non_blocking=True).unbind(1)
            # Whatever temperature and penalties follow, one id is left.
            logits.index_fill_(0, which, -torch.inf)
            logits[which, ids] = 0.0
        self.steps += 1
        self.seconds += time.perf_counter() - began
        return logits

    def _rows(self, ctx: Any) -> Iterator[tuple[int, Stream]]:
        if ctx is None:
            for row, stream in self._streams.items():
                if self._follow(stream, self._outputs[row]):
                    yield row, stream
            return
        for row, slot in enumerate(ctx.idx_mapping_np.tolist()):
            if slot in self._streams:
                yield row, self._streams[slot]

    def _measured(self) -> None:
        """Hand the entropies of the last step to the streams."""
        came = self._nats.finish()
        if came is None:
            return
        for (stream, position), nats in zip(self._measuring, came[0], strict=True):
            stream.measured = position, nats
            if nats == nats:
                self._entropies.append((stream.number, position, nats))


def _move(table: dict[int, Any], a: int, b: int, *, swap: bool) -> None:
    first, second = table.pop(a, None), table.pop(b, None)
    if first is not None:
        table[b] = first
    if swap and second is not None:
        table[a] = second


def _governor(vllm_config: Any) -> Measuring | None:
    """Return the connection to the server's governor, where there is one; its absence ends nothing."""
    try:
        return Measuring.of(vllm_config)
    except Exception:
        _log.exception("meridian: nothing is measured for the governor")
        return None


def _boundaries(tokenizer: Any) -> Callable[[int], bool]:
    """Tell which tokens end a clause, a sentence or a line; without a tokenizer, all may."""
    if tokenizer is None:
        return lambda _: True
    known: dict[int, bool] = {}

    def boundary(token: int) -> bool:
        found = known.get(token)
        if found is None:
            text = tokenizer.decode([token]).rstrip(" ")
            found = known[token] = text.endswith((".", "\n", ";", "?", "!", ","))
        return found

    return boundary
