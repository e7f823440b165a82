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
    resources.files("meridian.door").joinpath("door.binpb").read_bytes()
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
Steps: Final = _message_class("Steps")
Keep: Final = _message_class("Keep")
Find: Final = _message_class("Find")
Status: Final = _message_class("Status")
Store: Final = _message_class("Store")
StorePut: Final = _message_class("StorePut")
StoreGet: Final = _message_class("StoreGet")
StoreRemove: Final = _message_class("StoreRemove")
StoreOpen: Final = _message_class("StoreOpen")
StoreWrite: Final = _message_class("StoreWrite")
StoreCommit: Final = _message_class("StoreCommit")
StoreLocate: Final = _message_class("StoreLocate")
StoreHas: Final = _message_class("StoreHas")
StoreList: Final = _message_class("StoreList")
StoreStats: Final = _message_class("StoreStats")
StoreEvict: Final = _message_class("StoreEvict")
StoreMap: Final = _message_class("StoreMap")
Reply: Final = _message_class("Reply")
Event: Final = _message_class("Event")
Decision: Final = _message_class("Decision")

_FRAMES = (
    *(Hello, Welcome, Lend, Publish, Offer, Accept, Progress, Cancel, Step, Reply, Event, Status, Store),
    *(Keep, Find, Decision),
)
_CLASSES: Final[dict[int, Any]] = {_NUMBERS[cls.DESCRIPTOR.name.lower()]: cls for cls in _FRAMES}
_TYPES: Final[dict[Any, int]] = {cls: number for number, cls in _CLASSES.items()}


def frame_type(message: Message) -> int:
    """Return the number of a message's kind in FrameType."""
    return _TYPES[type(message)]


def parse(frame_type: int, body: bytes) -> Message | None:
    """Read the message of a frame. None: a newer agent's, of a type that is not known here.

    ValueError says why it cannot be read.
    """
    cls = _CLASSES.get(frame_type)
    if cls is None:
        return None
    try:
        return cls.FromString(body)
    except DecodeError as error:
        raise ValueError(f"{cls.DESCRIPTOR.name} cannot be read: {error}") from None
