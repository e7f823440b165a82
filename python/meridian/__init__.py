"""Meridian for Python: what a program needs to talk to Meridian.

>>> import meridian
>>> cfg = meridian.load_config()
>>> frame, rest = meridian.mrdn.parse(meridian.mrdn.encode(meridian.Tier.THINK_ACTIVE, b"kv"))

`meridian.door` is the engine door, `meridian.store` the object cache behind it. What is not used is not
imported: an engine that opens a door needs protobuf and nothing else.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from meridian._version import __version__

if TYPE_CHECKING:
    from meridian import door, mrdn, store
    from meridian.config import MeridianConfig, load_config
    from meridian.entropy import EntropyProbe, EntropySignal, KernelError
    from meridian.fault import ConfigError, Fault
    from meridian.mrdn import Tier

__all__ = [
    "ConfigError",
    "EntropyProbe",
    "EntropySignal",
    "Fault",
    "KernelError",
    "MeridianConfig",
    "Tier",
    "__version__",
    "door",
    "load_config",
    "mrdn",
    "store",
]

_HOMES = {
    "ConfigError": "meridian.fault",
    "EntropyProbe": "meridian.entropy",
    "EntropySignal": "meridian.entropy",
    "Fault": "meridian.fault",
    "KernelError": "meridian.entropy",
    "MeridianConfig": "meridian.config",
    "Tier": "meridian.mrdn",
    "load_config": "meridian.config",
}


def __getattr__(name: str) -> object:
    if name in ("door", "mrdn", "store"):
        return import_module(f"meridian.{name}")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
