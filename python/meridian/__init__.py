"""Meridian for Python: what a program needs to talk to Meridian.

>>> import meridian
>>> cfg = meridian.load_config()
>>> frame, rest = meridian.mrdn.parse(meridian.mrdn.encode(meridian.Tier.THINK_ACTIVE, b"kv"))
"""

from meridian import mrdn
from meridian._version import __version__
from meridian.config import MeridianConfig, load_config
from meridian.fault import ConfigError, Fault
from meridian.mrdn import Tier

__all__ = ["ConfigError", "Fault", "MeridianConfig", "Tier", "__version__", "load_config", "mrdn"]
