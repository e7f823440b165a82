package cuda

import (
	"errors"
	"fmt"
)

// Result is what CUDA's driver answers, by CUDA's own names.
type Result uint32

// The results that code here asks for.
const (
	Success              Result = 0
	InvalidValue         Result = 1
	OutOfMemory          Result = 2
	NotInitialized       Result = 3
	NoDevice             Result = 100
	InvalidDevice        Result = 101
	InvalidContext       Result = 201
	AlreadyMapped        Result = 208
	NoBinaryForGPU       Result = 209
	InvalidPTX           Result = 218
	UnsupportedPTX       Result = 222
	InvalidHandle        Result = 400
	NotFound             Result = 500
	NotReady             Result = 600
	IllegalAddress       Result = 700
	LaunchOutOfResources Result = 701
	AlreadyRegistered    Result = 712
	NotRegistered        Result = 713
	LaunchFailed         Result = 719
	NotPermitted         Result = 800
	NotSupported         Result = 801
	SystemNotReady       Result = 802
	DriverMismatch       Result = 803
	Unknown              Result = 999
)

var results = map[Result]struct{ name, hint string }{
	Success:              {"CUDA_SUCCESS", ""},
	InvalidValue:         {"CUDA_ERROR_INVALID_VALUE", ""},
	OutOfMemory:          {"CUDA_ERROR_OUT_OF_MEMORY", "the device's memory is taken: nvidia-smi says by whom; memory of a killed engine is freed when its importers close it"},
	NotInitialized:       {"CUDA_ERROR_NOT_INITIALIZED", ""},
	4:                    {"CUDA_ERROR_DEINITIALIZED", "the process is ending"},
	34:                   {"CUDA_ERROR_STUB_LIBRARY", "the libcuda.so.1 that was found is the toolkit's stub: put the driver's before it"},
	46:                   {"CUDA_ERROR_DEVICE_UNAVAILABLE", "another process holds the device in exclusive mode: nvidia-smi -q -d COMPUTE"},
	NoDevice:             {"CUDA_ERROR_NO_DEVICE", "no GPU is visible: see nvidia-smi and CUDA_VISIBLE_DEVICES"},
	InvalidDevice:        {"CUDA_ERROR_INVALID_DEVICE", ""},
	200:                  {"CUDA_ERROR_INVALID_IMAGE", ""},
	InvalidContext:       {"CUDA_ERROR_INVALID_CONTEXT", "a handle that this process exported itself cannot be opened in it"},
	205:                  {"CUDA_ERROR_MAP_FAILED", ""},
	206:                  {"CUDA_ERROR_UNMAP_FAILED", ""},
	AlreadyMapped:        {"CUDA_ERROR_ALREADY_MAPPED", ""},
	NoBinaryForGPU:       {"CUDA_ERROR_NO_BINARY_FOR_GPU", "the kernels need a GPU of compute capability 7.5 or later"},
	214:                  {"CUDA_ERROR_ECC_UNCORRECTABLE", "the device's memory is broken: nvidia-smi -q -d ECC"},
	217:                  {"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "these two devices cannot reach each other's memory: nvidia-smi topo -p2p r"},
	InvalidPTX:           {"CUDA_ERROR_INVALID_PTX", "the GPU is older than the kernels, which need compute capability 7.5 or later"},
	220:                  {"CUDA_ERROR_NVLINK_UNCORRECTABLE", ""},
	221:                  {"CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "libnvidia-ptxjitcompiler.so.1 is missing: install it with the driver"},
	UnsupportedPTX:       {"CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the driver is older than the kernels: update it"},
	304:                  {"CUDA_ERROR_OPERATING_SYSTEM", "exporter and importer must share a PID and an IPC namespace"},
	InvalidHandle:        {"CUDA_ERROR_INVALID_HANDLE", "the exporter may be gone"},
	NotFound:             {"CUDA_ERROR_NOT_FOUND", ""},
	NotReady:             {"CUDA_ERROR_NOT_READY", ""},
	IllegalAddress:       {"CUDA_ERROR_ILLEGAL_ADDRESS", "the context is lost: restart the process"},
	LaunchOutOfResources: {"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", ""},
	704:                  {"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", ""},
	709:                  {"CUDA_ERROR_CONTEXT_IS_DESTROYED", ""},
	AlreadyRegistered:    {"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", ""},
	NotRegistered:        {"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", ""},
	714:                  {"CUDA_ERROR_HARDWARE_STACK_ERROR", "the context is lost: restart the process"},
	716:                  {"CUDA_ERROR_MISALIGNED_ADDRESS", "the context is lost: restart the process"},
	718:                  {"CUDA_ERROR_INVALID_PC", "the context is lost: restart the process"},
	LaunchFailed:         {"CUDA_ERROR_LAUNCH_FAILED", "the context is lost: restart the process"},
	NotPermitted:         {"CUDA_ERROR_NOT_PERMITTED", ""},
	NotSupported:         {"CUDA_ERROR_NOT_SUPPORTED", ""},
	SystemNotReady:       {"CUDA_ERROR_SYSTEM_NOT_READY", "a service of the driver does not run (nvidia-fabricmanager)"},
	DriverMismatch:       {"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "libcuda.so.1 and the kernel's module are of different versions: reboot, or mount the host's libcuda"},
	Unknown:              {"CUDA_ERROR_UNKNOWN", "see dmesg for Xid"},
}

func (r Result) Error() string {
	if known, is := results[r]; is {
		return known.name
	}
	return fmt.Sprintf("CUDA result %d", uint32(r))
}

// Error is a call of CUDA that failed.
type Error struct {
	Op  string // what was to be done, with its numbers
	Err error  // a Result, for all that CUDA itself answered
}

func (e *Error) Error() string {
	text := "cuda: " + e.Op + ": " + e.Err.Error()
	if hint := e.Hint(); hint != "" {
		text += " (" + hint + ")"
	}
	return text
}

func (e *Error) Unwrap() error { return e.Err }

// Hint is what to do, or empty.
func (e *Error) Hint() string {
	var r Result
	if errors.As(e.Err, &r) {
		return results[r].hint
	}
	return ""
}

// failed names what was to be done, where that failed.
func failed(err error, op string, values ...any) error {
	if err == nil {
		return nil
	}
	return &Error{Op: fmt.Sprintf(op, values...), Err: err}
}

// Lost reports whether err means that the context is of no more use: every later
// call of this process answers the same.
func Lost(err error) bool {
	var r Result
	if !errors.As(err, &r) {
		return false
	}
	switch r {
	case IllegalAddress, LaunchFailed, 214, 220, 709, 714, 715, 716, 717, 718:
		return true
	}
	return false
}
