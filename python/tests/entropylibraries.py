"""A program: the vectors of testdata/probe through rows of NumPy and of torch.

It runs where those are, with nothing else but this package, and prints how many rows agreed.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from entropyvectors import load, logits, says

from meridian import EntropyProbe
from meridian.entropy import RowError

numpy: Any = import_module("numpy")
torch: Any = import_module("torch")


def numpy_row(row: dict[str, Any]) -> Any:
    return numpy.array(logits(row), numpy.float16 if row["dtype"] == "fp16" else numpy.float32)


def torch_row(row: dict[str, Any], device: str) -> Any:
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[row["dtype"]]
    return torch.tensor(logits(row), dtype=dtype, device=device)


def compare(make: Any, backend: str) -> int:
    file = load("entropies.json")
    probe = EntropyProbe([7], backend)
    for i, row in enumerate(file["rows"]):
        made = make(row)
        try:
            got = probe.compute(i, made).token_entropy
            assert got is not None and abs(got - row["nats"]) <= file["tolerance"], (row["name"], got)
        except RowError as problem:
            assert says(row, len(made)) in str(problem), (row["name"], problem)
    assert probe.kernel_fallbacks == 0, probe.last_kernel_error
    return len(file["rows"])


def batches(make: Any, backend: str) -> None:
    """One matrix, rows to be stacked, and rows of mixed vocabularies: the same entropies."""
    rows = [row for row in load("entropies.json")["rows"] if row.get("lcg", {}).get("count") == 151936]
    made = [make(row) for row in rows if row["dtype"] == "fp32"] * 4
    probe = EntropyProbe([7], backend)
    apart = [probe.compute(("one", i), row).token_entropy for i, row in enumerate(made)]
    together = probe.compute_batch(range(len(made)), made)
    library = torch if hasattr(made[0], "is_cuda") else numpy
    matrix = probe.compute_batch([("m", i) for i in range(len(made))], library.stack(made))
    for signals in (together, matrix):
        got = [s.token_entropy for s in signals]
        assert all(abs(g - a) < 1e-12 for g, a in zip(got, apart, strict=True)), (got, apart)  # type: ignore[operator]
    assert probe.alone == 0
    mixed = probe.compute_batch([("x", 0), ("x", 1)], [made[0], made[1][:1000]])
    assert mixed[0].token_entropy == apart[0] and probe.alone == 2, mixed


if __name__ == "__main__":
    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    count = compare(numpy_row, "cpu")
    batches(numpy_row, "cpu")
    for device in devices:
        count += compare(lambda row, device=device: torch_row(row, device), device)
        batches(lambda row, device=device: torch_row(row, device), device)
    for wrong in (numpy.zeros(3, numpy.int64), torch.zeros(3, dtype=torch.int64)):
        try:
            EntropyProbe([7]).compute(0, wrong)
            sys.exit("whole numbers passed for logits")
        except TypeError:
            pass
    print(f"{count} rows of NumPy and torch agree; devices: {', '.join(devices)}")
