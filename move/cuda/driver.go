package cuda

// Driver is what this room needs of CUDA's driver, call by call: libcuda itself
// in the accelerated build, cudatest's in tests. Every call may come from any
// goroutine; what CUDA asks of threads is the driver's business. Errors are
// Results.
type Driver interface {
	// Devices is how many there are.
	Devices() (int, error)
	// Describe says what a device is.
	Describe(ordinal int) (Description, error)
	// Retain returns the primary context of a device, and Release gives it back.
	Retain(ordinal int) (ContextHandle, error)
	Release(ordinal int) error

	// Free says how much of the device's memory is free, and how much there is.
	Free(c ContextHandle) (free, total uint64, err error)
	// MemAlloc and MemFree are for memory of the device, HostAlloc and HostFree
	// for memory of the host that stays where it is.
	MemAlloc(c ContextHandle, bytes uint64) (Pointer, error)
	MemFree(c ContextHandle, p Pointer) error
	HostAlloc(c ContextHandle, bytes uint64) (uintptr, error)
	HostFree(c ContextHandle, p uintptr) error
	// HostRegister pins memory that is there already; readOnly is for what this
	// process may not write.
	HostRegister(c ContextHandle, p uintptr, bytes uint64, readOnly bool) error
	HostUnregister(c ContextHandle, p uintptr) error
	// Range is the allocation that a pointer points into.
	Range(c ContextHandle, p Pointer) (base Pointer, bytes uint64, err error)

	// Export names an allocation to other processes, Import maps one of theirs.
	Export(c ContextHandle, p Pointer) (IPCHandle, error)
	Import(c ContextHandle, h IPCHandle) (Pointer, error)
	Unimport(c ContextHandle, p Pointer) error

	StreamCreate(c ContextHandle) (StreamHandle, error)
	StreamDestroy(c ContextHandle, s StreamHandle) error
	StreamSynchronize(c ContextHandle, s StreamHandle) error
	StreamWait(c ContextHandle, s StreamHandle, e EventHandle) error
	EventCreate(c ContextHandle) (EventHandle, error)
	EventDestroy(c ContextHandle, e EventHandle) error
	EventRecord(c ContextHandle, e EventHandle, s StreamHandle) error
	// EventQuery returns NotReady while what was recorded is under way.
	EventQuery(c ContextHandle, e EventHandle) error
	EventSynchronize(c ContextHandle, e EventHandle) error

	// Copy moves bytes between any two of device and pinned host memory; Fill
	// writes one value over them. Both only queue.
	Copy(c ContextHandle, s StreamHandle, to, from Pointer, bytes uint64) error
	Fill(c ContextHandle, s StreamHandle, to Pointer, value byte, bytes uint64) error

	// ModuleLoad takes PTX as text.
	ModuleLoad(c ContextHandle, ptx string) (ModuleHandle, error)
	ModuleUnload(c ContextHandle, m ModuleHandle) error
	Function(c ContextHandle, m ModuleHandle, name string) (FunctionHandle, error)
	Launch(c ContextHandle, s StreamHandle, l Launch) error
}

// Pointer is an address as the device sees it. Pinned host memory has the same
// one there as here.
type Pointer uint64

// What a driver's handles are is the driver's business.
type (
	ContextHandle  uintptr
	StreamHandle   uintptr
	EventHandle    uintptr
	ModuleHandle   uintptr
	FunctionHandle uintptr
)

// IPCHandle names an allocation of one process to the others of its machine.
type IPCHandle [64]byte

// UUID is a device's own name. Its ordinal is not: CUDA_VISIBLE_DEVICES numbers
// the devices anew for every process.
type UUID [16]byte

// Description is what a device is.
type Description struct {
	Name            string
	UUID            UUID
	Multiprocessors int
	Major, Minor    int // compute capability
}

// Launch is one kernel. Its parameters are words of 64 bits, every one.
type Launch struct {
	Function      FunctionHandle
	Grid, Threads int
	Parameters    []uint64
}
