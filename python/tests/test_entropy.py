"""The probe of Python against the vectors of testdata/probe, and what it does when things fail."""

from __future__ import annotations

import json
import math
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, require
from entropyvectors import VECTORS, load, logits, says

from meridian import EntropyProbe, KernelError, load_config
from meridian import entropy as entropy_module
from meridian._estimators import EAT, RPDI, WINDOW
from meridian.entropy import RowError

END = 151668


def test_the_generator_makes_the_vectors() -> None:
    made = runpy.run_path(str(VECTORS / "generate.py"))
    for name in ("entropies", "estimators"):
        assert same(json.loads(made[name]()), load(f"{name}.json")), name


def same(a: Any, b: Any) -> bool:
    """Equal, but for the last digits: those are the mathematical library's of a machine."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-11, abs_tol=1e-11)
    return type(a) is type(b) and bool(a == b)


def test_entropies_of_plain_rows() -> None:
    file = load("entropies.json")
    probe = EntropyProbe([END])
    seen = 0
    for i, row in enumerate(file["rows"]):
        if "lcg" in row and row["dtype"] != "fp32":
            continue  # the same numbers; plain rows have no types
        numbers = logits(row)
        if "error" in row:
            with pytest.raises(RowError) as problem:
                probe.compute(i, numbers)
            assert says(row, len(numbers)) in str(problem.value)
        else:
            got = probe.compute(i, numbers).token_entropy
            assert got is not None and abs(got - row["nats"]) <= file["tolerance"], row["name"]
        seen += 1
    assert seen > 50


def test_estimators() -> None:
    file = load("estimators.json")
    assert file["window"] == WINDOW
    for trace in file["traces"]:
        eat, rpdi, newest = EAT(trace["ema_alpha"]), RPDI(), None
        signals = {signal["step"]: signal for signal in trace["signals"]}
        for i, step in enumerate(trace["steps"]):
            match step:
                case ["token", nats, _]:
                    rpdi.add(newest := nats)
                case ["fork", nats]:
                    eat.add(nats)
                case _:
                    newest = None
                    rpdi.miss(1)
            if want := signals.get(i):
                local, everywhere = rpdi.means() or (None, None)
                got = {
                    "entropy": newest,
                    "eat": eat.last,
                    "eat_ema": eat.mean,
                    "eat_ema_variance": eat.variance,
                    "rpdi_local": local,
                    "rpdi_global": everywhere,
                }
                assert eat.warm == want["eat_warm"], (trace["name"], i)
                for name, value in got.items():
                    assert near(value, want[name], file["tolerance"]), (
                        trace["name"],
                        i,
                        name,
                        value,
                        want[name],
                    )


def near(a: float | None, b: float | None, tolerance: float) -> bool:
    return a is b if a is None or b is None else abs(a - b) <= tolerance


def test_what_is_absent_is_none() -> None:
    probe = EntropyProbe([END], ema_alpha=1.0)
    signal = probe.compute("r", [0.0, 0.0])
    assert signal.token_entropy == pytest.approx(math.log(2))
    assert (signal.eat, signal.eat_ema, signal.eat_ema_variance, signal.eat_warm) == (None, None, None, False)
    assert (signal.rpdi, signal.rpdi_local, signal.rpdi_global) == (None, None, None)
    for _ in range(WINDOW - 1):
        signal = probe.compute("r", [0.0, 0.0])
    assert signal.rpdi == pytest.approx(1) and signal.rpdi_local == pytest.approx(math.log(2))
    assert probe.miss("r").token_entropy is None
    for _ in range(2 * WINDOW):
        signal = probe.compute("r", [0.0, 0.0])
    assert signal.rpdi is None and signal.rpdi_global is None and signal.token_entropy is not None
    probe.forget("r")
    for _ in range(WINDOW):
        signal = probe.compute("r", [0.0, 0.0])
    assert signal.rpdi == pytest.approx(1), "a forgotten request is another one"


def test_certainty_has_no_index() -> None:
    probe = EntropyProbe([END])
    for _ in range(WINDOW):
        signal = probe.compute(1, [0.0])
    assert (signal.rpdi, signal.rpdi_local, signal.rpdi_global) == (None, 0.0, 0.0)


def test_forks_feed_eat_and_nothing_else() -> None:
    probe = EntropyProbe([END, (5, 6, 7)], ema_alpha=1.0)
    probe.compute(1, [0.0])
    signal = probe.compute(1, [0.0, 0.0], appended=[198, END, 198])
    assert signal.eat == pytest.approx(math.log(2)) and signal.token_entropy == 0.0
    assert (signal.eat_ema, signal.eat_ema_variance) == (signal.eat, 0.0)
    assert probe.compute(1, [0.0, 0.0, 0.0], appended=[5, 6, 7]).eat == pytest.approx(math.log(3))
    for appended in ([198], [5, 6], [6, 5, 7]):
        with pytest.raises(ValueError, match="hold no end of a thought"):
            probe.compute(1, [0.0], appended=appended)
    with pytest.raises(RowError):
        probe.compute(1, [math.nan], appended=[END])
    for _ in range(WINDOW):
        signal = probe.compute(1, [0.0, 0.0])
    assert signal.rpdi is not None, "a fork without an entropy leaves no gap among the tokens"


def test_a_bad_row_leaves_a_gap_and_the_others_alone() -> None:
    probe = EntropyProbe([END])
    for _ in range(WINDOW):
        good, bad = probe.compute_batch(["a", "b"], [[0.0, 0.0], [1.0, 1.0]])
    assert good.rpdi is not None and bad.rpdi is not None and good.problem == ""
    good, bad = probe.compute_batch(["a", "b"], [[0.0, 0.0], [1.0, math.inf]])
    assert good.rpdi is not None and good.token_entropy is not None
    assert (bad.token_entropy, bad.rpdi) == (None, None) and "+Inf: token 1 of 2" in bad.problem


def test_mixed_vocabularies_are_counted() -> None:
    probe = EntropyProbe([END])
    probe.compute_batch([1, 2], [[0.0] * 4, [0.0] * 4])
    assert probe.alone == 0
    signals = probe.compute_batch([1, 2, 3], [[0.0] * 4, [0.0] * 5, [0.0] * 4])
    assert probe.alone == 3
    assert [s.token_entropy for s in signals] == pytest.approx([math.log(4), math.log(5), math.log(4)])
    assert probe.compute_batch([], []) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"backend": "tpu"}, "backend must be one of cpu, cuda; got 'tpu'"),
        ({"ema_alpha": 1.5}, r"entropy\.ema_alpha must be in \[0\.001, 1\]; got 1\.5"),
        ({"ema_alpha": 0}, "ema_alpha"),
        ({"ema_alpha": 1e-30}, "ema_alpha"),
        ({"ema_alpha": math.nan}, "ema_alpha"),
        ({"think_end_token_ids": [()]}, "without any token"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EntropyProbe(**{"think_end_token_ids": [END], **arguments})


def test_bad_batches_are_refused() -> None:
    probe = EntropyProbe([END])
    with pytest.raises(ValueError, match="2 requests, but 1 rows"):
        probe.compute_batch([1, 2], [[0.0]])
    with pytest.raises(ValueError, match="named twice"):
        probe.compute_batch([1, 1], [[0.0], [0.0]])


def test_requests_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entropy_module, "MAX_REQUESTS", 2)
    probe = EntropyProbe([END])
    probe.compute_batch([1, 2], [[0.0], [0.0]])
    with pytest.raises(RuntimeError, match="forget"):
        probe.compute(3, [0.0])
    probe.forget(1)
    probe.compute(3, [0.0])


class Device:
    type = "cuda"

    def __str__(self) -> str:
        return "cuda:0"


class BrokenTensor:
    """A tensor on a GPU that cannot compute; its numbers can be read, or not."""

    __module__ = "torch.broken"
    ndim, device, readable = 2, Device(), True

    def __getitem__(self, _: object) -> BrokenTensor:
        return self

    def __len__(self) -> int:
        return 1

    def is_floating_point(self) -> bool:
        return True

    def split(self, _: int) -> list[Any]:
        raise RuntimeError("CUDA error: out of memory")

    def cpu(self) -> list[list[float]]:
        if not self.readable:
            raise RuntimeError("CUDA error: device-side assert triggered")
        return [[0.0, 0.0]]


def test_a_gpu_that_fails_is_replaced_by_the_cpu() -> None:
    probe = EntropyProbe([END], backend="cuda")
    for i in range(1, 6):
        assert probe.compute(1, BrokenTensor()).token_entropy == pytest.approx(math.log(2))
        assert probe.kernel_fallbacks == i
    assert "out of memory" in str(probe.last_kernel_error)


def test_logits_that_cannot_be_read() -> None:
    tensor = BrokenTensor()
    tensor.readable = False
    probe = EntropyProbe([END], backend="cuda")
    with pytest.raises(KernelError, match="cuda:0 can neither be computed there nor read"):
        probe.compute(1, tensor)
    assert issubclass(KernelError, RuntimeError)


def test_the_book_s_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "meridian.toml").write_text(
        f"[model.qwen3]\nthink_end_token_ids = [{END}]\nthink_start_token_ids = [151667]\n"
    )
    config = load_config("meridian.toml")
    ends = [marker.ids for marker in config.model["qwen3"].markers.end]
    probe = EntropyProbe(think_end_token_ids=ends, backend="cpu", ema_alpha=config.entropy.ema_alpha)
    assert probe.compute(req_id=42, logits=[1.0, 2.0]).token_entropy is not None


def test_importing_it_imports_no_library() -> None:
    code = "import sys, meridian; meridian.EntropyProbe([1]).compute(0, [1.0]); "
    code += "print({'numpy', 'torch'} & set(sys.modules))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert ran.stdout.strip() == "set()", ran.stderr


@pytest.mark.real
def test_rows_of_numpy_and_torch() -> None:
    python = ROOT / ".peers" / "vllm" / "bin" / "python"
    if not python.exists():
        require("vllm", "torch and NumPy come with it; to have them: make vllm")
    script = Path(__file__).parent / "entropylibraries.py"
    ran = subprocess.run(
        [str(python), str(script)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
    )
    assert ran.returncode == 0 and "rows of NumPy and torch agree" in ran.stdout, ran.stdout + ran.stderr
