//go:build accel && linux && (amd64 || arm64)

package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// libcuda is CUDA's driver, loaded when it is first asked for and never unloaded.
// CUDA keeps the current context by thread, so every call that needs one locks its
// goroutine to a thread and makes the context current there first: that costs less
// than a hop to a thread which has it.
type libcuda struct {
	symbols
}

// symbols are the functions that are called, by the names that libcuda exports.
type symbols struct {
	cuInit, cuGetErrorName, cuDeviceGetCount, cuDeviceGet, cuDeviceGetName, cuDeviceGetUuid, cuDeviceGetAttribute,
	cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRelease, cuCtxSetCurrent,
	cuMemGetInfo, cuMemAlloc, cuMemFree, cuMemHostAlloc, cuMemFreeHost, cuMemHostRegister, cuMemHostUnregister, cuMemGetAddressRange,
	cuIpcGetMemHandle, cuIpcOpenMemHandle, cuIpcCloseMemHandle,
	cuStreamCreate, cuStreamDestroy, cuStreamSynchronize, cuStreamWaitEvent,
	cuEventCreate, cuEventDestroy, cuEventRecord, cuEventQuery, cuEventSynchronize,
	cuMemcpyAsync, cuMemsetD8Async,
	cuModuleLoadData, cuModuleUnload, cuModuleGetFunction, cuLaunchKernel uintptr
}

func (s *symbols) names() map[string]*uintptr {
	return map[string]*uintptr{
		"cuInit": &s.cuInit, "cuGetErrorName": &s.cuGetErrorName, "cuDeviceGetCount": &s.cuDeviceGetCount, "cuDeviceGet": &s.cuDeviceGet,
		"cuDeviceGetName": &s.cuDeviceGetName, "cuDeviceGetUuid_v2": &s.cuDeviceGetUuid, "cuDeviceGetAttribute": &s.cuDeviceGetAttribute,
		"cuDevicePrimaryCtxRetain": &s.cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRelease_v2": &s.cuDevicePrimaryCtxRelease,
		"cuCtxSetCurrent": &s.cuCtxSetCurrent, "cuMemGetInfo_v2": &s.cuMemGetInfo, "cuMemAlloc_v2": &s.cuMemAlloc, "cuMemFree_v2": &s.cuMemFree,
		"cuMemHostAlloc": &s.cuMemHostAlloc, "cuMemFreeHost": &s.cuMemFreeHost, "cuMemHostRegister_v2": &s.cuMemHostRegister,
		"cuMemHostUnregister": &s.cuMemHostUnregister, "cuMemGetAddressRange_v2": &s.cuMemGetAddressRange,
		"cuIpcGetMemHandle": &s.cuIpcGetMemHandle, "cuIpcOpenMemHandle_v2": &s.cuIpcOpenMemHandle, "cuIpcCloseMemHandle": &s.cuIpcCloseMemHandle,
		"cuStreamCreate": &s.cuStreamCreate, "cuStreamDestroy_v2": &s.cuStreamDestroy, "cuStreamSynchronize": &s.cuStreamSynchronize,
		"cuStreamWaitEvent": &s.cuStreamWaitEvent, "cuEventCreate": &s.cuEventCreate, "cuEventDestroy_v2": &s.cuEventDestroy,
		"cuEventRecord": &s.cuEventRecord, "cuEventQuery": &s.cuEventQuery, "cuEventSynchronize": &s.cuEventSynchronize,
		"cuMemcpyAsync": &s.cuMemcpyAsync, "cuMemsetD8Async": &s.cuMemsetD8Async,
		"cuModuleLoadData": &s.cuModuleLoadData, "cuModuleUnload": &s.cuModuleUnload, "cuModuleGetFunction": &s.cuModuleGetFunction,
		"cuLaunchKernel": &s.cuLaunchKernel,
	}
}

// load is done once: what a machine has does not change under a process.
var load = sync.OnceValues(func() (Driver, error) {
	handle, err := purego.Dlopen("libcuda.so.1", purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("cuda: load libcuda: %w (install NVIDIA's driver; in a container, let its runtime mount libcuda.so.1)", err)
	}
	l := &libcuda{}
	for name, at := range l.names() {
		if *at, err = purego.Dlsym(handle, name); err != nil {
			return nil, fmt.Errorf("cuda: libcuda has no %s: %w (its driver is older than CUDA 11.4: update it)", name, err)
		}
	}
	if err := l.call(l.cuInit, 0); err != nil {
		return nil, failed(err, "start the driver")
	}
	return l, nil
})

// call is a call that needs no context. Pointers among the arguments are kept by
// the caller that converts them in the call itself, as unsafe asks.
//
//go:uintptrescapes
func (l *libcuda) call(function uintptr, arguments ...uintptr) error {
	r, _, _ := purego.SyscallN(function, arguments...)
	return l.result(r)
}

// in is a call in a context.
//
//go:uintptrescapes
func (l *libcuda) in(c ContextHandle, function uintptr, arguments ...uintptr) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if r, _, _ := purego.SyscallN(l.cuCtxSetCurrent, uintptr(c)); r != 0 {
		return l.result(r)
	}
	r, _, _ := purego.SyscallN(function, arguments...)
	return l.result(r)
}

// result names a result. One that the table here does not know is asked of the
// driver, which may be newer.
func (l *libcuda) result(r uintptr) error {
	code := Result(uint32(r))
	if code == Success {
		return nil
	}
	if _, known := results[code]; known {
		return code
	}
	var name *byte
	if r, _, _ := purego.SyscallN(l.cuGetErrorName, uintptr(code), uintptr(unsafe.Pointer(&name))); r == 0 && name != nil {
		return fmt.Errorf("%s: %w", text(unsafe.Slice(name, 256)), code)
	}
	return code
}

// text is a C string.
func text(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

func (l *libcuda) Devices() (int, error) {
	var n int32
	err := l.call(l.cuDeviceGetCount, uintptr(unsafe.Pointer(&n)))
	return int(n), err
}

func (l *libcuda) device(ordinal int) (uintptr, error) {
	var device int32
	err := l.call(l.cuDeviceGet, uintptr(unsafe.Pointer(&device)), uintptr(ordinal))
	return uintptr(device), err
}

func (l *libcuda) Describe(ordinal int) (d Description, err error) {
	device, err := l.device(ordinal)
	if err != nil {
		return d, err
	}
	var name [256]byte
	err = errors.Join(
		l.call(l.cuDeviceGetName, uintptr(unsafe.Pointer(&name)), uintptr(len(name)), device),
		l.call(l.cuDeviceGetUuid, uintptr(unsafe.Pointer(&d.UUID)), device),
	)
	d.Name = text(name[:])
	const multiprocessors, major, minor = 16, 75, 76 // CU_DEVICE_ATTRIBUTE_…
	for attribute, to := range map[uintptr]*int{multiprocessors: &d.Multiprocessors, major: &d.Major, minor: &d.Minor} {
		var value int32
		err = errors.Join(err, l.call(l.cuDeviceGetAttribute, uintptr(unsafe.Pointer(&value)), attribute, device))
		*to = int(value)
	}
	return d, err
}

func (l *libcuda) Retain(ordinal int) (c ContextHandle, err error) {
	device, err := l.device(ordinal)
	if err != nil {
		return 0, err
	}
	err = l.call(l.cuDevicePrimaryCtxRetain, uintptr(unsafe.Pointer(&c)), device)
	return c, err
}

func (l *libcuda) Release(ordinal int) error {
	device, err := l.device(ordinal)
	if err != nil {
		return err
	}
	return l.call(l.cuDevicePrimaryCtxRelease, device)
}
