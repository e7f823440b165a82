"""meridian.toml, as Python programs read it.

>>> cfg = load_config()
>>> cfg.scheduler.max_think_tokens
32768

`meridian.load_config` accepts and refuses the same files as the program
`meridian`, with the same dotted paths. A file is read in three layers, later
ones winning: defaults, the file, and environment variables named
MERIDIAN_SECTION_FIELD. Nothing is half-applied: one fault anywhere and there is
no configuration.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from meridian import _config_rules, _toml
from meridian._config_checker import Checker
from meridian.fault import ConfigError, Fault
from meridian.markers import Markers, resolve

if TYPE_CHECKING:
    from _typeshed import DataclassInstance, StrPath

FILE_NAME: Final = "meridian.toml"
FILE_VARIABLE: Final = "MERIDIAN_CONFIG"
MAX_FILE_BYTES: Final = 128 << 10
"""Go's limit; run/config/limits.go says why."""

Size = int | Literal["auto"]


@dataclass(frozen=True, slots=True)
class Governor:
    """The table [governor]."""

    enabled: bool
    wait_us: int


@dataclass(frozen=True, slots=True)
class Scheduler:
    """The table [scheduler]."""

    policy: str
    preempt_max_fraction: float
    think_tpot_budget_ms: float
    output_tpot_budget_ms: float
    think_batch_multiplier: float
    max_think_tokens: int
    min_think_tokens: int


@dataclass(frozen=True, slots=True)
class Entropy:
    """The table [entropy]."""

    enabled: bool
    ema_alpha: float
    rpdi_threshold: float
    eat_ema_variance_threshold: float
    transition_entropy_threshold: float
    eat_probe_interval_tokens: int


@dataclass(frozen=True, slots=True)
class KVMemory:
    """The table [kv_memory]."""

    aggressive_think_eviction: bool
    think_phase_memory_fraction: float
    block_size_bytes: Size
    capacity_bytes: Size


@dataclass(frozen=True, slots=True)
class Disagg:
    """The table [disagg]."""

    enabled: bool
    fabric: str
    offload_threshold_blocks: int


@dataclass(frozen=True, slots=True)
class Channel:
    """How gpt-oss keeps thoughts apart: open think message … close."""

    open: str
    message: str
    close: str
    think: str
    answer: str


@dataclass(frozen=True, slots=True)
class Model:
    """One table [model.<name>]."""

    supports_think_disable: bool
    split_thoughts: str
    think_limit: str
    think_start_token_ids: tuple[int, ...] = ()
    think_end_token_ids: tuple[int, ...] = ()
    think_start_texts: tuple[str, ...] = ()
    think_end_texts: tuple[str, ...] = ()
    channel: Channel | None = None
    tokenizer: str | None = None
    reasoning_parser: str | None = None
    source: str | None = None
    markers: Markers = field(default_factory=Markers)
    """What the fields above come down to."""


@dataclass(frozen=True, slots=True)
class Agent:
    """The table [agent]."""

    name: str
    fabrics: tuple[str, ...]
    listen: str
    advertise: str
    insecure: bool
    streams: int
    max_strangers: int
    handshake_timeout_ms: int
    max_grants: int
    state_dir: str


@dataclass(frozen=True, slots=True)
class Door:
    """The table [door]."""

    allow_uids: tuple[int, ...]
    require_leg: bool
    require_cache_leg: bool


@dataclass(frozen=True, slots=True)
class TLS:
    """The table [tls]."""

    mode: str
    ca: str
    cert: str
    key: str


@dataclass(frozen=True, slots=True)
class Directory:
    """The table [directory]."""

    endpoint: str
    prefix: str


@dataclass(frozen=True, slots=True)
class Backend:
    """One table [[gateway.backend]]."""

    url: str
    role: str
    phases: str
    engine: str
    api_key_file: str
    kv_events: str
    kv_events_replay: str
    kv_events_ranks: int


@dataclass(frozen=True, slots=True)
class Effort:
    """The table [gateway.effort]."""

    minimal: float
    low: float
    medium: float
    high: float
    xhigh: float


@dataclass(frozen=True, slots=True)
class Gateway:
    """The table [gateway]."""

    listen: str
    admin_listen: str
    admin_key_file: str
    metrics_listen: str
    insecure: bool
    tls_cert: str
    tls_key: str
    api_key_file: str
    proxy_paths: tuple[str, ...]
    resume: bool
    move_at_think_end: bool
    move_for_balance: bool
    warm_next_turn: bool
    direct_prompt_tokens: int
    promise_tokens: int
    prefix_affinity: float
    stored_token_weight: float
    max_body_bytes: int
    max_body_memory_bytes: int
    max_running: int
    max_waiting: int
    max_connections: int
    queue_timeout_ms: int
    client_timeout_ms: int
    prefill_timeout_ms: int
    first_token_timeout_ms: int
    answer_timeout_ms: int
    stall_timeout_ms: int
    effort: Effort
    backend: tuple[Backend, ...] = ()


@dataclass(frozen=True, slots=True)
class StoreDisk:
    """The table [store.disk]."""

    dir: str
    bytes: int
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class StoreS3:
    """The table [store.s3]."""

    endpoint: str
    bucket: str
    prefix: str
    region: str
    bytes: int
    timeout_ms: int
    requests_per_second: int
    bytes_per_second: int


@dataclass(frozen=True, slots=True)
class Store:
    """The table [store]."""

    enabled: bool
    bytes: int
    page_bytes: int
    master: bool
    policy: str
    high_watermark: int
    low_watermark: int
    tenant_quota: int
    write_timeout_ms: int
    direct_map: bool
    tenant: str
    block_tokens: int
    replicas: int
    find_wait_us: int
    find_timeout_ms: int
    keep_bytes_in_flight: int
    disk: StoreDisk
    s3: StoreS3


@dataclass(frozen=True, slots=True)
class Telemetry:
    """The table [telemetry]."""

    prometheus_listen: str
    otlp_enabled: bool
    otlp_endpoint: str
    trace_fraction: float


@dataclass(frozen=True, slots=True)
class Logging:
    """The table [logging]."""

    level: str
    format: str


@dataclass(frozen=True, slots=True)
class MeridianConfig:
    """A checked configuration."""

    governor: Governor
    scheduler: Scheduler
    entropy: Entropy
    kv_memory: KVMemory
    disagg: Disagg
    model: Mapping[str, Model]
    agent: Agent
    door: Door
    tls: TLS
    directory: Directory
    gateway: Gateway
    store: Store
    telemetry: Telemetry
    logging: Logging

    def model_of(self, name: str) -> Model | None:
        """Return the table of a model by the name that an engine gives it; none: it does not think.

        As for Go's config.ModelOf, names fit if they are equal, or else equal but for case, for what stands
        before the last slash, and for which of - . _ separates words. ValueError: several fit.
        """
        if name in self.model:
            return self.model[name]
        fit = sorted(table for table in self.model if _folded(table) == _folded(name))
        if len(fit) > 1:
            raise ValueError(f"{name!r} fits {' and '.join(fit)}; give one of them exactly that name")
        return self.model[fit[0]] if fit else None


def _folded(name: str) -> str:
    return name.rpartition("/")[2].lower().replace("-", "_").replace(".", "_")


def load_config(
    path: StrPath | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    directory: StrPath | None = None,
    home: StrPath | None = None,
) -> MeridianConfig:
    """Find, read and check a configuration: the file at path, or the one that
    MERIDIAN_CONFIG names, or ./meridian.toml, or ~/.config/meridian/meridian.toml,
    or built-in defaults.

    environ, directory and home stand in for the process's environment, working
    directory and home. Raises ConfigError with every fault of what was read, and
    OSError where a file cannot be read.
    """
    environ = os.environ if environ is None else environ
    named = path or environ.get(FILE_VARIABLE)
    file = os.fspath(named) if named else _find(directory, home)
    checker = Checker(file or "built-in defaults")
    if file:
        checker.file(_read(file))
    checker.environment(environ)
    _config_rules.apply(checker)
    directory = os.path.dirname(file)
    markers = {name: resolve(checker, model, directory) for name, model in checker.models.items()}
    if checker.faults:
        raise ConfigError(checker.faults)
    return MeridianConfig(
        governor=_section(Governor, checker, "governor"),
        scheduler=_section(Scheduler, checker, "scheduler"),
        entropy=_section(Entropy, checker, "entropy"),
        kv_memory=_section(KVMemory, checker, "kv_memory"),
        disagg=_section(Disagg, checker, "disagg"),
        model=MappingProxyType({name: _model(checker, name, markers[name]) for name in checker.models}),
        agent=_section(Agent, checker, "agent"),
        door=_section(Door, checker, "door"),
        tls=_section(TLS, checker, "tls"),
        directory=_section(Directory, checker, "directory"),
        gateway=_gateway(checker),
        store=_section(Store, checker, "store"),
        telemetry=_section(Telemetry, checker, "telemetry"),
        logging=_section(Logging, checker, "logging"),
    )


def _find(directory: StrPath | None, home: StrPath | None) -> str:
    """Return the first file of the search order that is there, or ""."""
    here = os.path.join(directory or "", FILE_NAME)
    with suppress(FileNotFoundError):
        os.stat(here)
        return here
    home = home or os.environ.get("HOME")
    if not home:
        return ""
    at_home = os.path.join(home, ".config", "meridian", FILE_NAME)
    # A home that cannot be entered or is no directory, as service accounts have
    # them, holds no file.
    with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        os.stat(at_home)
        return at_home
    return ""


def _read(file: str) -> dict[str, object]:
    with open(file, "rb") as stream:
        data = stream.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        reason = f"is larger than {MAX_FILE_BYTES} bytes; is it the right file?"
        raise ConfigError([Fault("", file, reason)])
    try:
        return _toml.read(data)
    except _toml.NotTOML as error:
        reason = f"not valid TOML: {error}"
        raise ConfigError([Fault("", file, reason, line=error.line, column=error.column)]) from error


_Table = TypeVar("_Table", bound="DataclassInstance")


def _section(table: type[_Table], checker: Checker, path: str) -> _Table:
    """Fill a dataclass from checked settings; what is not set keeps its default."""
    settings: dict[str, object] = {f.name: checker.value(f"{path}.{f.name}") for f in fields(table)}
    if table is Gateway:
        settings["effort"] = _section(Effort, checker, f"{path}.effort")
    if table is Store:
        settings["disk"] = _section(StoreDisk, checker, f"{path}.disk")
        settings["s3"] = _section(StoreS3, checker, f"{path}.s3")
    return table(**{name: value for name, value in settings.items() if value is not None})


def _gateway(checker: Checker) -> Gateway:
    paths = checker.lists.get("gateway.backend", ())
    return replace(
        _section(Gateway, checker, "gateway"),
        backend=tuple(_section(Backend, checker, path) for path in paths),
    )


def _model(checker: Checker, name: str, markers: Markers) -> Model:
    path = checker.models[name]
    model = replace(_section(Model, checker, path), markers=markers)
    if checker.value(f"{path}.channel.open") is None:
        return model
    return replace(model, channel=_section(Channel, checker, f"{path}.channel"))
