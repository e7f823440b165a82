"""Clients of the OpenAI API that tests play: patient, parallel, and such as go away."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

PATIENCE = 60.0
"""Seconds without a byte after which a client takes the server for hung."""

_T = TypeVar("_T")
_R = TypeVar("_R")


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def tokens(self) -> list[int]:
        """The ids of the answer's tokens."""
        assert self.status == 200, f"{self.status}: {self.body}"
        tokens: list[int] = self.body["choices"][0]["token_ids"]
        return tokens

    @property
    def error(self) -> str:
        text: str = self.body.get("error", {}).get("message", "")
        return text


def completion(prompt: Sequence[int], tokens: int, **more: object) -> dict[str, object]:
    """Return a request for so many greedy tokens, told by their ids."""
    return {
        "model": "tiny",
        "prompt": list(prompt),
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "return_token_ids": True,
        **more,
    }


def post(port: int, body: dict[str, object], path: str = "/v1/completions") -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read().decode()
        headers = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, headers, json.loads(text) if text.startswith("{") else {"text": text})
    finally:
        connection.close()


def streamed(port: int, body: dict[str, object], path: str = "/v1/completions") -> list[dict[str, Any]]:
    """Return the events of a stream that comes to its end."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request(
            "POST", path, json.dumps({**body, "stream": True}), {"Content-Type": "application/json"}
        )
        answer = connection.getresponse()
        events = answer.read().decode().removesuffix("\n\n").split("\n\n")
    finally:
        connection.close()
    assert (answer.status, events.pop()) == (200, "data: [DONE]"), events
    return [json.loads(event.removeprefix("data: ")) for event in events]


@dataclass
class Stream:
    """An answer as it comes, which its reader may leave at any time, also before anything has come."""

    tokens: list[int] = field(default_factory=list)
    error: str = ""
    complete: bool = False
    status: int = 0
    placement: str = ""
    left: bool = False
    first: float | None = None
    """When its first token came, by time.perf_counter."""
    _connection: http.client.HTTPConnection | None = None
    _state: threading.Lock = field(default_factory=threading.Lock)

    def read(self, port: int, body: dict[str, object], leave_after: float | None = None) -> Stream:
        """Ask and read to the end, or leave after so many seconds."""
        timer = threading.Timer(leave_after or 0.0, self._leave)
        try:
            with self._state:
                self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
                self._connection.connect()
            if leave_after is not None:
                timer.start()
            self._follow(self._connection, json.dumps({**body, "stream": True}))
        except (OSError, http.client.HTTPException):
            if not self.left:
                raise
        finally:
            timer.cancel()
            with self._state:
                if self._connection is not None:
                    self._connection.close()
                    self._connection = None
        return self

    def _follow(self, connection: http.client.HTTPConnection, request: str) -> None:
        connection.request("POST", "/v1/completions", request, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        self.status = answer.status
        self.placement = answer.getheader("X-Meridian-Placement", "")
        if answer.status != 200:
            self.error = answer.read().decode()
            return
        for line in answer:
            self._take(line.decode().strip())
        if not self.complete and not self.error and not self.left:
            self.error = "the stream ended early"

    def _leave(self) -> None:
        with self._state:
            if self._connection is None or self._connection.sock is None:
                return
            self.left = True
            with contextlib.suppress(OSError):
                self._connection.sock.shutdown(socket.SHUT_RDWR)

    def _take(self, line: str) -> None:
        if not line.startswith("data: "):
            return
        if line == "data: [DONE]":
            self.complete = True
            return
        event = json.loads(line.removeprefix("data: "))
        if "error" in event:
            self.error = str(event["error"])
            return
        for choice in event["choices"]:
            self.tokens += choice.get("token_ids") or []
        if self.tokens and self.first is None:
            self.first = time.perf_counter()


def at_once(do: Callable[[_T], _R], over: Iterable[_T], workers: int = 12) -> list[_R]:
    """Do something for many at a time, and return the results in order."""
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(do, over))
