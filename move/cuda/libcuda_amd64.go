//go:build accel && linux

package cuda

import "unsafe"

// openIPC passes the handle by value. Where structures of more than sixteen bytes
// lie on the stack, that is eight words after the six that fill the registers, of
// which only two are arguments.
func (l *libcuda) openIPC(c ContextHandle, p *Pointer, h *IPCHandle, flags uintptr) error {
	w := (*[8]uintptr)(unsafe.Pointer(h))
	return l.in(c, l.cuIpcOpenMemHandle, uintptr(unsafe.Pointer(p)), flags, 0, 0, 0, 0,
		w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7])
}
