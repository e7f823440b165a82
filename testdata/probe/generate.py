#!/usr/bin/env python3
"""Makes entropies.json and estimators.json, which hold every probe to the
definitions: Shannon's entropy, arXiv:2509.26522 (EAT) and arXiv:2603.14251 (RPDI).
It is written from those, in float64, and shares no code with any of the probes.

A row of logits is given as `hex` (its elements, little endian) or as `lcg`:
s₀ = seed, sᵢ₊₁ = (1664525·sᵢ + 1013904223) mod 2³², logit i = ((sᵢ₊₁ div 2²⁴) - 128)·step,
or -Inf where mask_every divides i; `hot` puts one value at a token. All of these are exact
in every dtype. A row has `nats`, or the `error` nan, infinite, masked or empty, with its `token`.

A trace has `steps`: ["token", nats, boundary], ["miss"] or ["fork", nats]. `reasons` are
[step, reason], where any comes; `signals` are what is known after a step, null where nothing is.

    python3 testdata/probe/generate.py     # writes both files beside itself
"""

import json
import math
import pathlib
import random
import struct
from decimal import Decimal

WINDOW = 512
MOST = 24 * math.log(2)  # nats that a token can have which was not measured
INF = math.inf
SIZES = {"fp32": 4, "bf16": 2, "fp16": 2}


def encode(dtype, values):
    """The elements as bytes; a value that the dtype cannot hold is refused."""
    out = b""
    for value in values:
        if dtype == "bf16":
            bits = struct.pack("<f", value)
            assert bits[:2] == b"\0\0" or math.isnan(value), (dtype, value)
            out += bits[2:]
        else:
            out += struct.pack("<f" if dtype == "fp32" else "<e", value)
    assert all(
        a == b or math.isnan(a) for a, b in zip(decode(dtype, out), values, strict=True)
    ), dtype
    return out


def decode(dtype, data):
    size = SIZES[dtype]
    parts = [data[i : i + size] for i in range(0, len(data), size)]
    if dtype == "bf16":
        return [struct.unpack("<f", b"\0\0" + p)[0] for p in parts]
    return [struct.unpack("<f" if dtype == "fp32" else "<e", p)[0] for p in parts]


def lcg(seed, count, step, mask_every=0, hot=None):
    state, row = seed, []
    for i in range(count):
        state = (1664525 * state + 1013904223) % 2**32
        row.append(
            -INF if mask_every and i % mask_every == 0 else ((state >> 24) - 128) * step
        )
    if hot:
        row[hot[0]] = hot[1]
    return row


def entropy(row):
    """Shannon's, over probabilities, with exact sums; what it cannot be, with the token."""
    if not row:
        return {"error": "empty"}
    for i, x in enumerate(row):
        if math.isnan(x):
            return {"error": "nan", "token": i}
        if x == INF:
            return {"error": "infinite", "token": i}
    most = max(row)
    if most == -INF:
        return {"error": "masked"}
    weights = [math.exp(x - most) for x in row if x != -INF]
    total = math.fsum(weights)
    return {
        "nats": math.fsum(
            -w / total * math.log(w / total) for w in weights if w / total > 0
        )
        + 0.0
    }


def small_rows():
    tiny = {"fp32": 2.0**-149, "bf16": 2.0**-133, "fp16": 2.0**-24}
    huge = {"fp32": 2.0**127, "bf16": 2.0**127, "fp16": 2.0**15}
    for dtype in SIZES:
        yield "one token", dtype, [3.5]
        yield "two equal", dtype, [0.0, 0.0]
        yield "all equal", dtype, [7.25] * 100
        yield "all equal, huge", dtype, [huge[dtype]] * 65
        yield "one hot", dtype, [-60.0] * 63 + [60.0]
        yield "one hot against a huge range", dtype, [-huge[dtype]] * 64 + [huge[dtype]]
        yield "denormals", dtype, [i * tiny[dtype] for i in range(64)]
        yield "signed zeros", dtype, [0.0, -0.0] * 33
        yield "masked but two", dtype, [-INF] * 70 + [1.0, 2.0] + [-INF] * 70
        yield "a ramp", dtype, [i / 8 for i in range(130)]
        yield "a ramp down", dtype, [-i / 4 for i in range(130)]
        yield "far below zero", dtype, [-8256.0, -8192.0, -8256.0, -8192.0, -8320.0]
        yield "all masked", dtype, [-INF] * 66
        yield "nothing", dtype, []
        yield "NaN", dtype, [1.0] * 80 + [math.nan] + [1.0] * 9
        yield "NaN behind masks", dtype, [-INF, math.nan]
        yield "infinite", dtype, [1.0] * 3 + [INF]
        yield "infinite before NaN", dtype, [INF, math.nan]


def large_rows():
    for dtype in SIZES:
        yield "a vocabulary", dtype, {"seed": 1, "count": 151936, "step": 0.125}
        yield "flat", dtype, {"seed": 2, "count": 151936, "step": 2.0**-10}
        yield "steep", dtype, {"seed": 3, "count": 50257, "step": 2.0}
        yield (
            "masked by thirds",
            dtype,
            {"seed": 4, "count": 128256, "step": 0.0625, "mask_every": 3},
        )
        yield (
            "half the mass on one",
            dtype,
            {"seed": 5, "count": 151936, "step": 2.0**-8, "hot": [151935, 12.0]},
        )
        yield (
            "sure, and a long tail",
            dtype,
            {"seed": 6, "count": 151936, "step": 0.015625, "hot": [70000, 16.0]},
        )


def entropies():
    rows = []
    for name, dtype, row in small_rows():
        rows.append(
            {
                "name": name,
                "dtype": dtype,
                "hex": encode(dtype, row).hex(),
                **entropy(row),
            }
        )
    for name, dtype, recipe in large_rows():
        row = lcg(**recipe)
        encode(dtype, set(row))
        rows.append({"name": name, "dtype": dtype, "lcg": recipe, **entropy(row)})
    return lines({"tolerance": 1e-5, "rows": rows}, "rows")


def ema(values, alpha):
    """All moving means and variances, as the paper's two recurrences have them."""
    means, variances = [values[0]], [0.0]
    for x in values[1:]:
        means.append(alpha * x + (1 - alpha) * means[-1])
        variances.append(alpha * (x - means[-1]) ** 2 + (1 - alpha) * variances[-1])
    return means, variances


class Trace:
    """A thought, kept whole: everything is computed anew from all of it."""

    def __init__(
        self, name, alpha=0.05, eat=1e-3, rpdi=3.0, min_think=512, transition=2.5
    ):
        self.options = {
            "ema_alpha": alpha,
            "eat_ema_variance_threshold": eat,
            "rpdi_threshold": rpdi,
            "transition_entropy_threshold": transition,
            "min_think_tokens": min_think,
        }
        self.name, self.steps, self.reasons, self.signals = name, [], [], []
        self.tokens, self.forks = [], []  # None is a token that was not measured

    def means(self):
        if len(self.tokens) < WINDOW or None in self.tokens:
            return None, None
        return math.fsum(self.tokens[-WINDOW:]) / WINDOW, math.fsum(self.tokens) / len(
            self.tokens
        )

    def least_rpdi(self):
        """What RPDI is at least, whatever the tokens had that were not measured; 0 where there is none."""
        most = math.fsum(MOST if t is None else t for t in self.tokens) / len(
            self.tokens
        )
        if len(self.tokens) < WINDOW or not most:
            return 0
        return math.fsum(t or 0 for t in self.tokens[-WINDOW:]) / WINDOW / most

    def old_enough(self):
        return len(self.tokens) >= self.options["min_think_tokens"]

    def token(self, nats, boundary):
        self.steps.append(["token", nats, boundary])
        self.tokens.append(nats)
        if (
            boundary
            and self.old_enough()
            and self.least_rpdi() > self.options["rpdi_threshold"]
        ):
            self.reasons.append([len(self.steps) - 1, "overthinking"])
        if len(self.tokens) % 97 == 0 or len(self.tokens) in (
            WINDOW - 1,
            WINDOW,
            WINDOW + 1,
        ):
            self.look()

    def miss(self):
        self.steps.append(["miss"])
        self.tokens.append(None)
        self.look()

    def fork(self, nats):
        self.steps.append(["fork", nats])
        self.forks.append(nats)
        if (
            self.old_enough()
            and self.warm()
            and self.eat()[2] < self.options["eat_ema_variance_threshold"]
        ):
            self.reasons.append([len(self.steps) - 1, "converged"])
        self.look()

    def warm(self):
        """The first 4/alpha forks warm up; alpha is the decimal that was written."""
        return len(self.forks) > math.ceil(4 / Decimal(str(self.options["ema_alpha"])))

    def eat(self):
        if not self.forks:
            return None, None, None
        means, variances = ema(self.forks, self.options["ema_alpha"])
        return self.forks[-1], means[-1], variances[-1]

    def look(self):
        last, mean, variance = self.eat()
        local, everywhere = self.means()
        self.signals.append({
            "step": len(self.steps) - 1,
            "entropy": self.tokens[-1] if self.tokens else None,
            "eat": last, "eat_ema": mean, "eat_ema_variance": variance, "eat_warm": self.warm(),
            "rpdi": local / everywhere if everywhere else None, "rpdi_local": local, "rpdi_global": everywhere,
            "transitions": sum(t is not None and t > self.options["transition_entropy_threshold"] for t in self.tokens),
        })  # fmt: skip

    def record(self):
        self.look()
        return {
            "name": self.name,
            **self.options,
            "steps": self.steps,
            "reasons": self.reasons,
            "signals": self.signals,
        }


def settling(dice):
    """The answer settles; nothing else changes."""
    t = Trace("settles", alpha=0.1, eat=2e-3, min_think=512)
    for fork in range(60):
        for i in range(20):
            t.token(round(dice.uniform(0.2, 1.2), 4), i % 7 == 0)
        t.fork(round(0.6 + dice.uniform(-0.6, 0.6) * 0.9**fork, 4))
    return t


def derailing(dice):
    """The chain becomes more and more undecided."""
    t = Trace("loses its way", rpdi=2.0, min_think=600)
    for i in range(2400):
        t.token(round(dice.uniform(0.0, 0.5) * (1 if i < 1500 else 8), 4), i % 11 == 3)
    return t


def both(dice):
    t = Trace("both at once", alpha=0.2, eat=0.05, rpdi=1.5, min_think=0)
    for i in range(1300):
        t.token(round(dice.uniform(0.0, 1.0) + (i > 700) * 2.4, 4), i % 5 == 0)
        if i % 50 == 49:
            t.fork(round(dice.uniform(0.5, 0.7), 4))
    return t


def steady(dice):
    t = Trace("steady, and long", rpdi=1.2)
    for i in range(1700):
        t.token(round(dice.uniform(0.3, 0.9), 4), i % 3 == 0)
    return t


def certain(_):
    """Every token is certain: a ratio of nothing to nothing."""
    t = Trace("certain", rpdi=1.5, min_think=0)
    for i in range(700):
        t.token(0.0, i % 3 == 0)
    return t


def missed(dice):
    t = Trace("one token is missing", alpha=1.0, rpdi=1.1, min_think=0)
    for i in range(1400):
        if i == 650:
            t.miss()
        else:
            t.token(round(dice.uniform(0.1, 0.3) * (1 if i < 900 else 6), 4), True)
    for _ in range(6):
        t.fork(0.25)
    return t


def elsewhere(dice):
    """It began elsewhere, and some came late; what is lost in between is certain."""
    t = Trace("began elsewhere, with gaps", rpdi=1.5, min_think=0)
    for i in range(3000):
        if i < 150 or i % 401 == 7:
            t.miss()
        else:
            t.token(
                round(dice.uniform(0.1, 0.3) * (1 if i < 1900 else 20), 4), i % 3 == 0
            )
    return t


def estimators():
    dice = random.Random(16)
    traces = [
        make(dice).record()
        for make in (settling, derailing, both, steady, certain, missed, elsewhere)
    ]
    return lines({"tolerance": 1e-9, "window": WINDOW, "traces": traces}, "traces")


def lines(record, long):
    """JSON with one line for each entry of the long list."""
    entries = record.pop(long)
    head = json.dumps(record)[:-1]
    return (
        f'{head}, "{long}": [\n'
        + ",\n".join(json.dumps(e, ensure_ascii=False) for e in entries)
        + "\n]}\n"
    )


if __name__ == "__main__":
    here = pathlib.Path(__file__).parent
    (here / "entropies.json").write_text(entropies())
    (here / "estimators.json").write_text(estimators())
