"""What CUDA's driver says of a worker's memory on a GPU, and when its kernels have run.

The driver is asked by itself: what torch exports of a tensor comes with files that count who has it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final

from meridian.door import GPUMemory
from meridian.vllm.memory import Region

_DEVICE_ORDINAL: Final = 9
_INVALID_VALUE: Final = 1
_LIBRARY: Final = "libcuda.so.1"


def load_driver() -> Any:
    """Load libcuda. ValueError: this machine has none, as one with GPUs of another maker."""
    try:
        return ctypes.CDLL(_LIBRARY)
    except OSError as error:
        raise ValueError(f"a KV cache on a GPU is lent by CUDA's driver: {error}") from error


def exported(regions: Sequence[Region], driver: Any) -> list[tuple[GPUMemory, int]]:
    """Export regions of GPUs to other processes, and return each with its size.

    Several of one allocation have one handle. ValueError: the memory cannot be
    exported.
    """
    return [(_export(region, driver), region.size) for region in regions]


def _export(region: Region, driver: Any) -> GPUMemory:
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    address = ctypes.c_uint64(region.address)
    _check(driver, "cuMemGetAddressRange", ctypes.byref(base), ctypes.byref(size), address, version="_v2")
    offset = region.address - base.value
    if offset + region.size > size.value:
        raise ValueError(
            f"{region.size} bytes of KV cache at {region.address:#x} reach beyond their allocation "
            f"of {size.value} bytes: {_UNSHARED}"
        )
    handle = (ctypes.c_ubyte * 64)()
    _check(driver, "cuIpcGetMemHandle", handle, ctypes.c_uint64(base.value))
    number, device = ctypes.c_int(), ctypes.c_int()
    _check(driver, "cuPointerGetAttribute", ctypes.byref(number), ctypes.c_int(_DEVICE_ORDINAL), address)
    _check(driver, "cuDeviceGet", ctypes.byref(device), number)
    uuid = (ctypes.c_ubyte * 16)()
    _check(driver, "cuDeviceGetUuid", uuid, device, version="_v2")
    return GPUMemory(bytes(handle), bytes(uuid), offset)


_UNSHARED: Final = (
    "memory of sleep mode or of expandable segments has no CUDA IPC handle; start vLLM without "
    "--enable-sleep-mode, and without expandable_segments in PYTORCH_CUDA_ALLOC_CONF"
)


def _check(driver: Any, call: str, *arguments: Any, version: str = "") -> None:
    result = getattr(driver, call + version)(*arguments)
    if result == 0:
        return
    text = ctypes.c_char_p()
    driver.cuGetErrorName(result, ctypes.byref(text))
    name = text.value.decode() if text.value else str(result)
    hint = f": {_UNSHARED}" if call == "cuIpcGetMemHandle" and result == _INVALID_VALUE else ""
    raise ValueError(f"the KV cache on the GPU cannot be lent, {call} says {name}{hint}")


def record_event() -> Any:
    """Return what can be waited for: that all which was put into vLLM's stream so far has run."""
    import torch

    event = torch.cuda.Event(blocking=True)  # who waits sleeps
    event.record()
    return event
