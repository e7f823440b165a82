"""What is exported of a GPU's memory, with a driver that the test plays."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from meridian.door import GPUMemory
from meridian.vllm.gpu import exported
from meridian.vllm.memory import Region

BASE, SIZE = 0x7F00_0000_0000, 1 << 20
UUID = bytes(range(16))


class FakeDriver:
    """One GPU, the machine's third, with one allocation."""

    def __init__(self, ipc: int = 0) -> None:
        self.ipc = ipc

    def cuMemGetAddressRange_v2(self, base: Any, size: Any, address: ctypes.c_uint64) -> int:
        if not BASE <= address.value < BASE + SIZE:
            return 1
        base._obj.value, size._obj.value = BASE, SIZE
        return 0

    def cuIpcGetMemHandle(self, handle: Any, address: ctypes.c_uint64) -> int:
        assert address.value == BASE
        handle[:] = range(64)
        return self.ipc

    def cuPointerGetAttribute(self, value: Any, attribute: ctypes.c_int, address: ctypes.c_uint64) -> int:
        assert attribute.value == 9 and BASE <= address.value < BASE + SIZE
        value._obj.value = 2
        return 0

    def cuDeviceGet(self, device: Any, number: ctypes.c_int) -> int:
        device._obj.value = 100 + number.value
        return 0

    def cuDeviceGetUuid_v2(self, uuid: Any, device: ctypes.c_int) -> int:
        assert device.value == 102
        uuid[:] = UUID
        return 0

    def cuGetErrorName(self, result: int, name: Any) -> int:
        name._obj.value = b"CUDA_ERROR_INVALID_VALUE" if result == 1 else None
        return 0


def test_stretches_of_one_allocation_have_one_handle() -> None:
    lent = [Region(BASE, 4096), Region(BASE + 8192, SIZE - 8192)]
    handle = bytes(range(64))
    assert exported(lent, FakeDriver()) == [
        (GPUMemory(handle, UUID, 0), 4096),
        (GPUMemory(handle, UUID, 8192), SIZE - 8192),
    ]


def test_memory_that_cannot_be_exported_is_refused_with_what_to_do() -> None:
    with pytest.raises(
        ValueError, match=r"cuIpcGetMemHandle says CUDA_ERROR_INVALID_VALUE.*--enable-sleep-mode"
    ):
        exported([Region(BASE, 4096)], FakeDriver(ipc=1))
    with pytest.raises(ValueError, match=r"reach beyond their allocation.*expandable_segments"):
        exported([Region(BASE + 4096, SIZE)], FakeDriver())
    with pytest.raises(ValueError, match=r"cuIpcGetMemHandle says 801$"):
        exported([Region(BASE, 4096)], FakeDriver(ipc=801))
    with pytest.raises(ValueError, match=r"cuMemGetAddressRange says CUDA_ERROR_INVALID_VALUE$"):
        exported([Region(0, 4096)], FakeDriver())
