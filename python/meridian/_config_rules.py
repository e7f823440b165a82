"""Rules across fields. Each speaks only when the fields it reads are sound by
themselves, so that one mistake is reported once."""

from __future__ import annotations

from meridian._config_checker import Checker
from meridian.fault import display

CHANNEL_FIELDS = ("open", "message", "close", "think", "answer")


def apply(checker: Checker) -> None:
    _order_rule(checker, "scheduler.min_think_tokens", "scheduler.max_think_tokens")
    _order_rule(checker, "store.low_watermark", "store.high_watermark")
    _fabric_rule(checker)
    _pair_rule(checker, "tls.cert", "tls.key", absent="auto")
    _pair_rule(checker, "gateway.tls_cert", "gateway.tls_key", absent="none")
    _pair_rule(checker, "store.s3.endpoint", "store.s3.bucket", absent="none")
    for path in checker.lists.get("gateway.backend", ()):
        url = f"{path}.url"
        if checker.sound(url) and checker.value(url) is None:
            checker.fault_at(url, "must be given")
    for path in checker.models.values():
        _model_rules(checker, path)


def _order_rule(checker: Checker, min_path: str, max_path: str) -> None:
    """Blame the bound that was set, not the default it ran into."""
    least, most = checker.settings[min_path], checker.value(max_path)
    if not checker.sound(min_path, max_path) or checker.value(min_path) < most:
        return
    if least.origin == "default":
        checker.fault_at(max_path, f"must be > {min_path}, which is {least.value}", display(most))
    else:
        checker.fault_at(min_path, f"must be < {max_path}, which is {most}", display(least.value))


def _fabric_rule(checker: Checker) -> None:
    enabled, fabric = "disagg.enabled", "disagg.fabric"
    if checker.sound(enabled, fabric) and checker.value(enabled) and checker.value(fabric) == "none":
        reason = 'must name a fabric while disagg.enabled is true; use "meridian"'
        checker.fault_at(fabric, reason, display("none"))


def _pair_rule(checker: Checker, cert: str, key: str, *, absent: str) -> None:
    """Blame the half that is missing."""
    given = [path for path in (cert, key) if checker.value(path) != absent]
    if checker.sound(cert, key) and len(given) == 1:
        missing = key if given == [cert] else cert
        checker.fault_at(missing, f"must be given, because {given[0]} is")


def _model_rules(checker: Checker, path: str) -> None:
    def given(field: str) -> bool:
        value = checker.value(f"{path}.{field}")
        return value is not None and value != ()

    for kind in ("token_ids", "texts"):
        start, end = f"think_start_{kind}", f"think_end_{kind}"
        if checker.sound(f"{path}.{start}", f"{path}.{end}") and given(start) and not given(end):
            checker.fault_at(f"{path}.{end}", f"must be given, because {start} is")
    ids = given("think_start_token_ids") or given("think_end_token_ids")
    texts = given("think_start_texts") or given("think_end_texts")
    missing = [
        field
        for field in CHANNEL_FIELDS
        if not given(f"channel.{field}") and checker.sound(f"{path}.channel.{field}")
    ]
    channel = len(missing) < len(CHANNEL_FIELDS)
    if channel:
        for field in missing:
            reason = "must be given, because the other channel fields are"
            checker.fault_at(f"{path}.channel.{field}", reason)
        if ids or texts:
            checker.fault_at(f"{path}.channel", "cannot stand beside think ids or texts; keep one of them")
    _shared_ids_rule(checker, path)
    _parser_rule(checker, path, ids=ids, texts=texts, channel=channel)


def _shared_ids_rule(checker: Checker, path: str) -> None:
    starts = set(checker.value(f"{path}.think_start_token_ids") or ())
    for token_id in checker.value(f"{path}.think_end_token_ids") or ():
        if token_id in starts:
            end = f"{path}.think_end_token_ids"
            checker.fault_at(end, "must share no id with think_start_token_ids", display(token_id))
            return


def _parser_rule(checker: Checker, path: str, *, ids: bool, texts: bool, channel: bool) -> None:
    """Each parser that needs one kind of marker refuses the others."""
    parser = checker.value(f"{path}.reasoning_parser")
    wrong = ""
    match parser:
        case "anthropic" | "granite":
            if ids or channel:
                wrong = f"{parser} takes think_start_texts and think_end_texts: "
                wrong += "such a model has no think token ids"
        case "gpt_oss":
            if ids or texts:
                wrong = "gpt_oss takes a channel table: the model marks thoughts by channel"
        case str():
            if channel:
                wrong = f"{parser} takes ids or texts; only gpt_oss has channels"
    if wrong:
        checker.fault_at(f"{path}.reasoning_parser", wrong)
