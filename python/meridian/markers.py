"""How a model's thoughts start and end."""

from __future__ import annotations

import os.path
from collections.abc import Iterable
from dataclasses import dataclass

from meridian._config_checker import Checker
from meridian._config_rules import CHANNEL_FIELDS
from meridian.fault import display
from meridian.token import NoMarker, Vocabulary


@dataclass(frozen=True, slots=True)
class Marker:
    """One way a thought may start or end: a sequence of token ids where they
    are known, and its text where that was given."""

    ids: tuple[int, ...] = ()
    text: str = ""


@dataclass(frozen=True, slots=True)
class Markers:
    """How thoughts start and end. No end means that the model does not mark
    thoughts at all."""

    start: tuple[Marker, ...] = ()
    end: tuple[Marker, ...] = ()


PROSE_PARSERS = ("granite", "anthropic")


def resolve(checker: Checker, path: str, directory: str) -> Markers:
    """Return the markers of the model at path. Where it names a tokenizer, relative
    to directory, every marker text is looked up in it, and a miss is a fault."""

    def ids(field: str) -> tuple[int, ...]:
        return checker.value(f"{path}.{field}") or ()

    def texts(field: str) -> tuple[str, ...]:
        return checker.value(f"{path}.{field}") or ()

    vocabulary = _open(checker, f"{path}.tokenizer", directory)
    if checker.value(f"{path}.reasoning_parser") in PROSE_PARSERS:
        vocabulary = None  # tokens spell prose in more than one way: its text is looked for
    lookup = _Lookup(checker, path, vocabulary)
    channel = [checker.value(f"{path}.channel.{field}") for field in CHANNEL_FIELDS]
    if all(channel):
        return lookup.channel(*channel)
    if any(channel):
        return Markers()  # what is missing has been said
    start_texts = lookup.texts("think_start_texts", texts("think_start_texts"))
    end_texts = lookup.texts("think_end_texts", texts("think_end_texts"))
    start_ids, end_ids = ids("think_start_token_ids"), ids("think_end_token_ids")
    if not end_ids:
        return Markers(start_texts, end_texts)
    lookup.agree("think_start", start_ids, start_texts)
    lookup.agree("think_end", end_ids, end_texts)
    return Markers(_id_markers(start_ids), _id_markers(end_ids))


def _id_markers(ids: Iterable[int]) -> tuple[Marker, ...]:
    return tuple(Marker((token_id,)) for token_id in ids)


def _open(checker: Checker, path: str, directory: str) -> Vocabulary | None:
    tokenizer = checker.value(path)
    if tokenizer is None:
        return None
    file = tokenizer
    if not os.path.isabs(file):
        file = os.path.normpath(os.path.join(directory, file))
    try:
        return Vocabulary.open(file)
    except (OSError, ValueError) as error:
        checker.fault_at(path, f"cannot be read as a tokenizer.json: {error}", display(tokenizer))
        return None


@dataclass(frozen=True, slots=True)
class _Lookup:
    """Looks marker texts up in a model's tokenizer, where there is one."""

    checker: Checker
    path: str
    vocabulary: Vocabulary | None

    def channel(self, open: str, message: str, close: str, think: str, answer: str) -> Markers:
        # A thought ends where its message closes; what follows may be another
        # thought, a tool call or the answer's own channel.
        start = self.texts("channel.open", [open + think + message])
        end = self.texts("channel.close", [close])
        self.texts("channel.answer", [open + answer + message])
        return Markers(start, end)

    def texts(self, field: str, texts: Iterable[str]) -> tuple[Marker, ...]:
        return tuple(Marker(self._ids(field, text), text) for text in texts)

    def _ids(self, field: str, text: str) -> tuple[int, ...]:
        if self.vocabulary is None:
            return ()
        try:
            return self.vocabulary.marker(text)
        except NoMarker as error:
            reason = f"no such marker in the tokenizer: {error}"
            self.checker.fault_at(f"{self.path}.{field}", reason, display(text))
            return ()

    def agree(self, end: str, ids: tuple[int, ...], resolved: tuple[Marker, ...]) -> None:
        """Demand that ids given beside texts are what the texts resolve to."""
        field = f"{self.path}.{end}_token_ids"
        if self.vocabulary is None or not self.checker.sound(field, f"{self.path}.{end}_texts"):
            return
        for marker in resolved:
            if len(marker.ids) == 1 and marker.ids[0] in ids:
                continue
            text, found = display(marker.text), list(marker.ids)
            reason = f"disagrees with the tokenizer, where {text} is {found}"
            if len(found) > 1:
                reason = (
                    f"each id is a marker by itself, but {text} is several tokens, {found}; leave the ids out"
                )
            self.checker.fault_at(field, reason, str(list(ids)))
            return
