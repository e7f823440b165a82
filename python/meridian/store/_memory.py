"""Memory of this process that the agent copies from, or to."""

from __future__ import annotations

import ctypes
from typing import Any, Final, Self

INLINE: Final = 16 << 10
"""Up to where a value travels in a frame: beyond, that the agent copies it itself costs less."""


class _PyBuffer(ctypes.Structure):
    """Py_buffer, as CPython's stable interface has it."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


_WRITABLE: Final = 1
_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = (ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int)
_get_buffer.restype = ctypes.c_int
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = (ctypes.POINTER(_PyBuffer),)
_release_buffer.restype = None
_new_bytes = ctypes.pythonapi.PyBytes_FromStringAndSize
_new_bytes.argtypes = (ctypes.c_char_p, ctypes.c_ssize_t)
_new_bytes.restype = ctypes.py_object


class Memory:
    """The bytes of an object, at an address that stays until it is released.

    Anything with the buffer protocol will do, NumPy's arrays too, and torch's tensors on the CPU; all must be
    contiguous.
    """

    def __init__(self, owner: Any, *, writable: bool = False) -> None:
        self._owner = owner  # it stays as long as this does
        self._view: _PyBuffer | None = None
        if hasattr(owner, "data_ptr") and hasattr(owner, "is_contiguous"):
            self._of_tensor(owner)
        else:
            self._of_buffer(owner, writable)
        if self.size == 0:
            self.release()
            raise ValueError("an empty buffer: an object has at least one byte")

    def _of_tensor(self, tensor: Any) -> None:
        if tensor.device.type != "cpu":
            raise TypeError(f"a tensor on {tensor.device}: copy it with .cpu() first")
        if not tensor.is_contiguous():
            raise TypeError("a tensor that is not contiguous: call .contiguous() first")
        self.address: int = tensor.data_ptr()
        self.size: int = tensor.numel() * tensor.element_size()

    def _of_buffer(self, owner: Any, writable: bool) -> None:
        view = _PyBuffer()
        try:
            _get_buffer(owner, ctypes.byref(view), _WRITABLE if writable else 0)
        except (BufferError, ValueError) as error:
            raise TypeError(f"{_described(owner, writable)}: {error}") from None
        except TypeError:
            raise TypeError(
                f"{_described(owner, writable)}: it has no buffer protocol, and is no torch tensor"
            ) from None
        self._view = view
        self.address, self.size = view.buf or 0, view.len

    def read(self) -> bytes:
        """Return a copy."""
        return ctypes.string_at(self.address, self.size)

    def view(self) -> memoryview:
        """Return the bytes where they are, until they are released."""
        return memoryview((ctypes.c_ubyte * self.size).from_address(self.address)).cast("B")

    def release(self) -> None:
        """Let go of the memory."""
        if self._view is not None:
            _release_buffer(ctypes.byref(self._view))
            self._view = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _described(owner: object, writable: bool) -> str:
    wanted = "contiguous memory that can be written" if writable else "contiguous memory"
    return f"{type(owner).__name__} is no {wanted}"


def new_bytes(size: int) -> bytes:
    """Return bytes that are not written yet: the caller fills them before it shows them."""
    made: bytes = _new_bytes(None, size)
    return made
