"""Where the streams of requests stand, by the ids that start and end thoughts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from meridian._thought import Reason, Terms, Thought
from meridian.vllm.xargs import RequestArgs

TAIL_TOKENS: Final = 2
"""So many tokens may follow a marker that a chat template wrote at the end of a prompt: a line break or two.
What stands further from the end was written by a user or in an earlier turn, and opens nothing."""


@dataclass(frozen=True, slots=True)
class ThinkMarkers:
    """How a model's thoughts start and end, as token ids."""

    start: tuple[tuple[int, ...], ...]
    end: tuple[tuple[int, ...], ...]
    force: tuple[int, ...]
    """What is put to end a thought: one of `end`, perhaps behind a sentence that leads there."""
    opens: bool = False
    """Whether a stream without a start marker is a thought."""
    longest: int = field(init=False)
    opening: frozenset[int] = field(init=False)
    """The last ids of start markers, as `closing` are those of end markers: most tokens are neither."""
    closing: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        if not all((*self.start, *self.end, self.force)) or not self.end:
            raise ValueError("a think marker has no token")
        if not any(self.force[-len(end) :] == end for end in self.end):
            raise ValueError(f"putting {list(self.force)} would not end a thought, which {self.end} does")

        object.__setattr__(self, "longest", max(map(len, (*self.start, *self.end, self.force))))
        object.__setattr__(self, "opening", frozenset(each[-1] for each in self.start))
        object.__setattr__(self, "closing", frozenset(each[-1] for each in self.end))

    def opened(self, prompt: Sequence[int]) -> int | None:
        """Return how many tokens of a thought a prompt ends with; None: it opens none."""
        for after in range(min(TAIL_TOKENS, len(prompt)) + 1):
            before = list(prompt[max(0, len(prompt) - after - self.longest) : len(prompt) - after])
            if ends_with(before, self.end):
                return None
            if ends_with(before, self.start):
                return after
        return 0 if self.opens else None


def ends_with(tokens: Sequence[int], markers: tuple[tuple[int, ...], ...]) -> bool:
    return any(len(tokens) >= len(m) and tuple(tokens[-len(m) :]) == m for m in markers)


class Stream:
    """The tokens of one request, as they are committed."""

    __slots__ = (
        *("_args", "_boundary", "_markers", "_prompt", "_tail", "_terms", "measured", "name", "number"),
        *("position", "reason", "think", "thinking", "thought"),
    )

    def __init__(
        self,
        markers: ThinkMarkers,
        terms: Terms,
        args: RequestArgs,
        number: int | None,
        boundary: Callable[[int], bool],
    ) -> None:
        self.number = number
        """The scheduler's number of the request."""
        self.name = ""
        """What the gateway calls it, where it wants to hear why its thought was ended."""
        self._markers, self._args, self._boundary = markers, args, boundary
        self._terms = args.terms(terms)
        self._prompt: int | None = None
        self.begin(())

    def set_terms(self, terms: Terms) -> None:
        """Go by other terms from here on; a thought that is being ended is ended."""
        self._terms = self._args.terms(terms)
        self.thought.terms = self._terms

    def begin(self, prompt: Sequence[int]) -> None:
        """Stand behind a prompt, of which the end is enough: none of its tokens is known."""
        self._prompt = self._markers.opened(prompt)
        if self._args.think_tokens is not None:
            self._prompt = self._args.think_tokens
        if self._args.answers:
            self._prompt = None
        self.rewind()

    def rewind(self) -> None:
        """Forget what followed the prompt."""
        self.position = 0
        """Tokens that followed the prompt."""
        self.thinking = self._prompt is not None
        self.think = self._prompt or 0
        """Tokens of the thought, without its markers; those that the prompt ends with count."""
        self.thought = Thought(self._terms)
        self.thought.miss(self._args.think_tokens or 0)
        self.reason = Reason.FREE
        """Why the thought is being ended."""
        self.measured: tuple[int, float] | None = None
        """The newest entropy, and of the token at which position it is."""
        self._tail: list[int] = []

    def take(self, token: int) -> None:
        """Follow the next committed token."""
        nats = self.measured[1] if self.measured and self.measured[0] == self.position else None
        self.position += 1
        markers, tail = self._markers, self._tail
        tail.append(token)
        if len(tail) > markers.longest:
            del tail[0]
        if not self.thinking:
            if token in markers.opening and ends_with(tail, markers.start):
                self.thinking, self.think, self.reason = True, 0, Reason.FREE
                self.thought = Thought(self._terms)
                tail.clear()
            return
        self.think += 1
        if token in markers.closing and ends_with(tail, markers.end):
            self.thinking = False
            tail.clear()
        elif self.reason is Reason.FREE:
            if nats is None:
                self.thought.miss(1)
            else:
                self.thought.token(nats, self._boundary(token))

    def wanted(self) -> int | None:
        """Return the id that must come next to end the thought; None: it may go on, or there is none.

        Where the stream already ends with a part of what is put, the rest follows: so it goes on
        where it was after a preemption, and where another part of vLLM has put the first ids.
        """
        if not self.thinking:
            return None
        if self.reason is Reason.FREE:
            self.reason = self.thought.verdict(self.think)
            if self.reason is Reason.FREE:
                return None
        force = self._markers.force
        for length in range(min(len(force) - 1, len(self._tail)), 0, -1):
            if tuple(self._tail[-length:]) == force[:length]:
                return force[length]
        return force[0]
