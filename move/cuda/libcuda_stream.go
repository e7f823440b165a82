//go:build accel && linux && (amd64 || arm64)

package cuda

import (
	"runtime"
	"unsafe"
)

func (l *libcuda) StreamCreate(c ContextHandle) (s StreamHandle, err error) {
	const nonBlocking = 1 // CU_STREAM_NON_BLOCKING: it does not wait for the default stream
	err = l.in(c, l.cuStreamCreate, uintptr(unsafe.Pointer(&s)), nonBlocking)
	return s, err
}

func (l *libcuda) StreamDestroy(c ContextHandle, s StreamHandle) error {
	return l.in(c, l.cuStreamDestroy, uintptr(s))
}

func (l *libcuda) StreamSynchronize(c ContextHandle, s StreamHandle) error {
	return l.in(c, l.cuStreamSynchronize, uintptr(s))
}

func (l *libcuda) StreamWait(c ContextHandle, s StreamHandle, e EventHandle) error {
	return l.in(c, l.cuStreamWaitEvent, uintptr(s), uintptr(e), 0)
}

func (l *libcuda) EventCreate(c ContextHandle) (e EventHandle, err error) {
	const blockingSync, disableTiming = 1, 2 // CU_EVENT_…
	err = l.in(c, l.cuEventCreate, uintptr(unsafe.Pointer(&e)), blockingSync|disableTiming)
	return e, err
}

func (l *libcuda) EventDestroy(c ContextHandle, e EventHandle) error {
	return l.in(c, l.cuEventDestroy, uintptr(e))
}

func (l *libcuda) EventRecord(c ContextHandle, e EventHandle, s StreamHandle) error {
	return l.in(c, l.cuEventRecord, uintptr(e), uintptr(s))
}

func (l *libcuda) EventQuery(c ContextHandle, e EventHandle) error {
	return l.in(c, l.cuEventQuery, uintptr(e))
}

func (l *libcuda) EventSynchronize(c ContextHandle, e EventHandle) error {
	return l.in(c, l.cuEventSynchronize, uintptr(e))
}

func (l *libcuda) ModuleLoad(c ContextHandle, ptx string) (m ModuleHandle, err error) {
	image := append([]byte(ptx), 0)
	err = l.in(c, l.cuModuleLoadData, uintptr(unsafe.Pointer(&m)), uintptr(unsafe.Pointer(unsafe.SliceData(image))))
	return m, err
}

func (l *libcuda) ModuleUnload(c ContextHandle, m ModuleHandle) error {
	return l.in(c, l.cuModuleUnload, uintptr(m))
}

func (l *libcuda) Function(c ContextHandle, m ModuleHandle, name string) (f FunctionHandle, err error) {
	symbol := append([]byte(name), 0)
	err = l.in(c, l.cuModuleGetFunction, uintptr(unsafe.Pointer(&f)), uintptr(m), uintptr(unsafe.Pointer(unsafe.SliceData(symbol))))
	return f, err
}

// Launch gives CUDA pointers to the parameters, which it has read when it returns.
func (l *libcuda) Launch(c ContextHandle, s StreamHandle, k Launch) error {
	words := append([]uint64(nil), k.Parameters...)
	at := make([]unsafe.Pointer, len(words)+1)
	for i := range words {
		at[i] = unsafe.Pointer(&words[i])
	}
	const sharedBytes = 0
	err := l.in(c, l.cuLaunchKernel, uintptr(k.Function), uintptr(k.Grid), 1, 1, uintptr(k.Threads), 1, 1,
		sharedBytes, uintptr(s), uintptr(unsafe.Pointer(unsafe.SliceData(at))), 0)
	runtime.KeepAlive(words)
	return err
}
