"""How an agent's door is, for programs that are no engines."""

from __future__ import annotations

import os
import socket as sockets
import time
from dataclasses import dataclass

from meridian._version import __version__
from meridian.door import _messages
from meridian.door._conversation import FEATURES, check_welcome, introduce
from meridian.door._events import DoorError, problem_of
from meridian.door._frames import Deframer, frame
from meridian.door._messages import Message

_PIECE = 64 << 10


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """Who is at an agent's door now."""

    agent: str
    connections: int
    engines: int
    serving: int
    """Engines that are complete."""


def agent_status(
    socket: str | os.PathLike[str],
    *,
    software: str = f"meridian-python {__version__}",
    timeout: float = 10.0,
) -> AgentStatus:
    """Ask an agent, as a client that is no engine. It lends nothing, and its end fences nothing.

    DoorError: the agent refuses it (`unsupported`: it is older than the question), or says nothing in time.
    """
    hello = _messages.Hello(software=software)
    hello.client.SetInParent()
    introduce(hello)
    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM) as connected:
        try:
            until = time.monotonic() + timeout
            connected.settimeout(timeout)
            connected.connect(os.fspath(socket))
            connected.sendall(frame(hello))
            deframer = Deframer()
            welcome = _expect(_messages.Welcome, connected, deframer, until)
            check_welcome(welcome)
            if "status" not in FEATURES.intersection(welcome.features):
                raise DoorError("unsupported", f"agent {welcome.agent} does not tell its status")
            connected.sendall(frame(_messages.Status(request=1)))
            told = _expect(_messages.Reply, connected, deframer, until).status
        except TimeoutError:
            raise DoorError(
                "no_answer", f"the agent at {socket} has not answered within {timeout:g} s"
            ) from None
        except OSError as error:
            raise DoorError("lost", f"no agent at {socket}: {error}") from None
        except ValueError as error:
            raise DoorError("malformed", f"the agent at {socket} says what cannot be read: {error}") from None
    return AgentStatus(welcome.agent, told.connections, told.engines, told.serving)


def _expect(wanted: type[Message], connected: sockets.socket, deframer: Deframer, until: float) -> Message:
    """Read the one message that must come now. A Reply with a problem may come instead of it."""
    while (message := deframer.next()) is None:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connected.settimeout(left)
        if not (data := connected.recv(_PIECE)):
            raise ConnectionResetError("it has ended the connection")
        deframer.feed(data)
    if isinstance(message, _messages.Reply) and (problem := problem_of(message.problem)):
        raise problem
    if not isinstance(message, wanted):
        raise ValueError(f"{message.DESCRIPTOR.name} came where {wanted.DESCRIPTOR.name} was due")
    return message
