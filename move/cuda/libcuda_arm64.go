//go:build accel && linux

package cuda

import "unsafe"

// openIPC passes the handle by value, which on this processor means a pointer to a
// copy of it.
func (l *libcuda) openIPC(c ContextHandle, p *Pointer, h *IPCHandle, flags uintptr) error {
	handle := *h
	return l.in(c, l.cuIpcOpenMemHandle, uintptr(unsafe.Pointer(p)), uintptr(unsafe.Pointer(&handle)), flags)
}
