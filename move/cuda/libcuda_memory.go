//go:build accel && linux && (amd64 || arm64)

package cuda

import "unsafe"

func (l *libcuda) Free(c ContextHandle) (free, total uint64, err error) {
	err = l.in(c, l.cuMemGetInfo, uintptr(unsafe.Pointer(&free)), uintptr(unsafe.Pointer(&total)))
	return free, total, err
}

func (l *libcuda) MemAlloc(c ContextHandle, bytes uint64) (p Pointer, err error) {
	err = l.in(c, l.cuMemAlloc, uintptr(unsafe.Pointer(&p)), uintptr(bytes))
	return p, err
}

func (l *libcuda) MemFree(c ContextHandle, p Pointer) error { return l.in(c, l.cuMemFree, uintptr(p)) }

func (l *libcuda) HostAlloc(c ContextHandle, bytes uint64) (p uintptr, err error) {
	const portable = 1 // CU_MEMHOSTALLOC_PORTABLE: pinned for every context
	err = l.in(c, l.cuMemHostAlloc, uintptr(unsafe.Pointer(&p)), uintptr(bytes), portable)
	return p, err
}

func (l *libcuda) HostFree(c ContextHandle, p uintptr) error { return l.in(c, l.cuMemFreeHost, p) }

func (l *libcuda) HostRegister(c ContextHandle, p uintptr, bytes uint64, readOnly bool) error {
	const portable, toRead = 1, 8 // CU_MEMHOSTREGISTER_PORTABLE, _READ_ONLY
	flags := uintptr(portable)
	if readOnly {
		flags |= toRead
	}
	return l.in(c, l.cuMemHostRegister, p, uintptr(bytes), flags)
}

func (l *libcuda) HostUnregister(c ContextHandle, p uintptr) error {
	return l.in(c, l.cuMemHostUnregister, p)
}

func (l *libcuda) Range(c ContextHandle, p Pointer) (base Pointer, bytes uint64, err error) {
	err = l.in(c, l.cuMemGetAddressRange, uintptr(unsafe.Pointer(&base)), uintptr(unsafe.Pointer(&bytes)), uintptr(p))
	return base, bytes, err
}

func (l *libcuda) Export(c ContextHandle, p Pointer) (h IPCHandle, err error) {
	err = l.in(c, l.cuIpcGetMemHandle, uintptr(unsafe.Pointer(&h)), uintptr(p))
	return h, err
}

func (l *libcuda) Import(c ContextHandle, h IPCHandle) (p Pointer, err error) {
	const lazyPeerAccess = 1 // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, the only flag there is
	err = l.openIPC(c, &p, &h, lazyPeerAccess)
	return p, err
}

func (l *libcuda) Unimport(c ContextHandle, p Pointer) error {
	return l.in(c, l.cuIpcCloseMemHandle, uintptr(p))
}

func (l *libcuda) Copy(c ContextHandle, s StreamHandle, to, from Pointer, bytes uint64) error {
	return l.in(c, l.cuMemcpyAsync, uintptr(to), uintptr(from), uintptr(bytes), uintptr(s))
}

func (l *libcuda) Fill(c ContextHandle, s StreamHandle, to Pointer, value byte, bytes uint64) error {
	return l.in(c, l.cuMemsetD8Async, uintptr(to), uintptr(value), uintptr(bytes), uintptr(s))
}
