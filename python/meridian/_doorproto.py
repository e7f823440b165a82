"""The messages of the engine door, made of the committed descriptor set.

They live in a pool of their own, so that nothing an engine brings can collide
with them, and are made by whatever protobuf runtime it brings.
"""

from __future__ import annotations

from importlib import resources
from typing import Any, Final, TypeAlias

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

Message: TypeAlias = Any
"""A message's fields are known to the descriptor set only."""

PACKAGE: Final = "meridian.door.v1"

_POOL: Final = descriptor_pool.DescriptorPool()
for _file in descriptor_pb2.FileDescriptorSet.FromString(
    resources.files("meridian").joinpath("door.binpb").read_bytes()
).file:
    _POOL.AddSerializedFile(_file.SerializeToString())

_PREFIX: Final = "FRAME_TYPE_"
_NUMBERS: Final[dict[str, int]] = {
    name.removeprefix(_PREFIX).lower(): value.number
    for name, value in _POOL.FindEnumTypeByName(f"{PACKAGE}.FrameType").values_by_name.items()
}


def _message_class(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{PACKAGE}.{name}"))


Hello: Final = _message_class("Hello")
Welcome: Final = _message_class("Welcome")
Lend: Final = _message_class("Lend")
Publish: Final = _message_class("Publish")
Offer: Final = _message_class("Offer")
Accept: Final = _message_class("Accept")
Progress: Final = _message_class("Progress")
Cancel: Final = _message_class("Cancel")
Step: Final = _message_class("Step")
Reply: Final = _message_class("Reply")
Event: Final = _message_class("Event")

_CLASSES: Final[dict[int, Any]] = {
    _NUMBERS[cls.DESCRIPTOR.name.lower()]: cls
    for cls in (Hello, Welcome, Lend, Publish, Offer, Accept, Progress, Cancel, Step, Reply, Event)
}


def frame_type(message: Message) -> int:
    """Return the number of a message's kind in FrameType."""
    return _NUMBERS[message.DESCRIPTOR.name.lower()]


def parse(frame_type: int, body: bytes) -> Message:
    """Read the message of a frame; ValueError says why there is none."""
    cls = _CLASSES.get(frame_type)
    if cls is None:
        raise ValueError(f"there is no frame of type {frame_type}")
    try:
        return cls.FromString(body)
    except DecodeError as error:
        raise ValueError(f"{cls.DESCRIPTOR.name} cannot be read: {error}") from None
