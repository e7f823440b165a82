package cudatest

import (
	"slices"
	"sort"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"meridian/move/cuda"
)

// Process is a driver as one process sees it.
type Process struct {
	machine *Machine

	mu       sync.Mutex // protects the rest
	retained map[int]int
	ranges   []mapping // what the devices see, in the order of addresses
	next     cuda.Pointer
	handle   uintptr // the last that was given out
	streams  map[cuda.StreamHandle]*stream
	events   map[cuda.EventHandle]*event
	modules  map[cuda.ModuleHandle]bool
	kernels  map[cuda.FunctionHandle]string
	lost     error // of a context that did what it must not
	killed   bool
	launches int // kernels that were started
	// Unregistered: host memory cannot be registered, as on some machines.
	Unregistered bool
	hung         chan struct{} // closed when kernels run again
	waiting      int           // kernels that wait for that
	flipped      cuda.Pointer
}

var _ cuda.Driver = (*Process)(nil)

// mapping is memory at an address of a process: of a device, or pinned.
type mapping struct {
	at     cuda.Pointer
	memory []byte
	vram   *vram // nil for host memory
	ours   bool  // allocated here: not imported, not registered
}

// firstAddress is where every process's device memory begins, so that two of them
// have equal addresses.
const firstAddress cuda.Pointer = 0x7f_0000_0000_00

// Process starts one.
func (m *Machine) Process() *Process {
	return &Process{
		machine: m, retained: make(map[int]int), next: firstAddress,
		streams: make(map[cuda.StreamHandle]*stream), events: make(map[cuda.EventHandle]*event),
		modules: make(map[cuda.ModuleHandle]bool), kernels: make(map[cuda.FunctionHandle]string),
	}
}

// Kill ends the process as kill -9 does: its work stops, its memory goes, but for
// what others have imported.
func (p *Process) Kill() {
	p.mu.Lock()
	streams := p.streams
	p.streams = make(map[cuda.StreamHandle]*stream)
	p.mu.Unlock()
	for _, s := range streams {
		s.end()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.ranges {
		p.unmap(r)
	}
	p.ranges, p.retained = nil, make(map[int]int)
	p.events, p.modules = make(map[cuda.EventHandle]*event), make(map[cuda.ModuleHandle]bool)
	p.killed, p.lost = true, cuda.Result(4) // CUDA_ERROR_DEINITIALIZED
}

// Flip has the next kernel that writes to an address write another byte there.
func (p *Process) Flip(at cuda.Pointer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flipped = at
}

// flip does that, in what a kernel has just written.
func (p *Process) flip(at cuda.Pointer, written []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.flipped >= at && p.flipped-at < cuda.Pointer(len(written)) {
		written[p.flipped-at] ^= 0x20
		p.flipped = 0
	}
}

// Hang keeps every kernel from running until resume is called.
func (p *Process) Hang() (resume func()) {
	hung := make(chan struct{})
	p.mu.Lock()
	p.hung = hung
	p.mu.Unlock()
	return func() {
		p.mu.Lock()
		p.hung = nil
		p.mu.Unlock()
		close(hung)
	}
}

// waitHung returns when kernels run.
func (p *Process) waitHung() {
	p.mu.Lock()
	hung := p.hung
	p.waiting++
	p.mu.Unlock()
	if hung != nil {
		<-hung
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting--
}

// Launches is how many kernels were started.
func (p *Process) Launches() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.launches
}

// Waiting is how many kernels would run if they could.
func (p *Process) Waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waiting
}

// Killed tells whether it was.
func (p *Process) Killed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.killed
}

// unmap lets go of memory. The caller holds mu.
func (p *Process) unmap(r mapping) {
	switch {
	case r.vram != nil && r.ours:
		p.machine.withdraw(r.vram)
		r.vram.drop()
	case r.vram != nil:
		r.vram.drop()
	case r.ours:
		_ = unix.Munmap(r.memory)
	}
}

// Open is how many contexts, mappings, streams, events and modules the process has.
func (p *Process) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.ranges) + len(p.streams) + len(p.events) + len(p.modules)
	for _, count := range p.retained {
		n += count
	}
	return n
}

// fail makes every later call fail, as CUDA does after a bad address.
func (p *Process) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost == nil {
		p.lost = err
	}
}

// enter takes the lock, if the context is a good one.
func (p *Process) enter(c cuda.ContextHandle) error {
	p.mu.Lock()
	switch {
	case p.lost != nil:
		p.mu.Unlock()
		return p.lost
	case p.retained[int(c)-1] == 0:
		p.mu.Unlock()
		return cuda.InvalidContext
	}
	return nil
}

// name gives out a handle. The caller holds mu.
func (p *Process) name() uintptr { p.handle++; return p.handle }

// Devices is how many there are.
func (p *Process) Devices() (int, error) { return len(p.machine.devices), nil }

// Describe says what a device is.
func (p *Process) Describe(ordinal int) (cuda.Description, error) {
	if ordinal < 0 || ordinal >= len(p.machine.devices) {
		return cuda.Description{}, cuda.InvalidDevice
	}
	return p.machine.devices[ordinal].description, nil
}

// Retain returns the primary context.
func (p *Process) Retain(ordinal int) (cuda.ContextHandle, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost != nil {
		return 0, p.lost
	}
	p.retained[ordinal]++
	return cuda.ContextHandle(ordinal + 1), nil
}

// Release gives it back.
func (p *Process) Release(ordinal int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.retained[ordinal] == 0 {
		return cuda.InvalidContext
	}
	p.retained[ordinal]--
	return nil
}

// Free says how much memory is free.
func (p *Process) Free(c cuda.ContextHandle) (free, total uint64, err error) {
	if err := p.enter(c); err != nil {
		return 0, 0, err
	}
	p.mu.Unlock()
	g := p.machine.devices[c-1]
	return g.bytes - p.machine.Taken(int(c)-1), g.bytes, nil
}

// MemAlloc allocates memory of a device.
func (p *Process) MemAlloc(c cuda.ContextHandle, bytes uint64) (cuda.Pointer, error) {
	if err := p.enter(c); err != nil {
		return 0, err
	}
	defer p.mu.Unlock()
	v, err := p.machine.devices[c-1].alloc(p, bytes)
	if err != nil {
		return 0, err
	}
	return p.place(v, true), nil
}

// place gives memory of a device the next address. The caller holds mu.
func (p *Process) place(v *vram, ours bool) cuda.Pointer {
	const apart = 2 << 20 // so that a step too far meets nothing
	at := p.next
	p.next += cuda.Pointer((uint64(len(v.memory))/apart + 2) * apart)
	p.add(mapping{at: at, memory: v.memory, vram: v, ours: ours})
	return at
}

// add puts a mapping where its address belongs. The caller holds mu.
func (p *Process) add(m mapping) {
	p.ranges = slices.Insert(p.ranges, p.before(m.at), m)
}

// before is how many mappings begin below an address. The caller holds mu.
func (p *Process) before(at cuda.Pointer) int {
	return sort.Search(len(p.ranges), func(i int) bool { return p.ranges[i].at >= at })
}

// around is the mapping that an address lies in, or at whose end it is, or nil. A
// kernel asks for every piece that it copies, and the race detector looks at every
// mapping that is looked at. The caller holds mu.
func (p *Process) around(at cuda.Pointer) *mapping {
	i := p.before(at + 1)
	if i == 0 || at-p.ranges[i-1].at > cuda.Pointer(len(p.ranges[i-1].memory)) {
		return nil
	}
	return &p.ranges[i-1]
}

// remove takes the mapping out that begins at an address.
func (p *Process) remove(c cuda.ContextHandle, at cuda.Pointer, ours, device bool, missing error) error {
	if err := p.enter(c); err != nil {
		return err
	}
	defer p.mu.Unlock()
	for i, r := range p.ranges {
		if r.at == at && r.ours == ours && (r.vram != nil) == device {
			p.ranges = append(p.ranges[:i:i], p.ranges[i+1:]...)
			p.unmap(r)
			return nil
		}
	}
	return missing
}

// MemFree frees it.
func (p *Process) MemFree(c cuda.ContextHandle, at cuda.Pointer) error {
	return p.remove(c, at, true, true, cuda.InvalidValue)
}

// HostAlloc allocates pinned memory.
func (p *Process) HostAlloc(c cuda.ContextHandle, bytes uint64) (uintptr, error) {
	if err := p.enter(c); err != nil {
		return 0, err
	}
	defer p.mu.Unlock()
	memory, err := mapped(bytes)
	if err != nil {
		return 0, err
	}
	at := uintptr(unsafe.Pointer(unsafe.SliceData(memory)))
	p.add(mapping{at: cuda.Pointer(at), memory: memory, ours: true})
	return at, nil
}

// HostFree frees it.
func (p *Process) HostFree(c cuda.ContextHandle, at uintptr) error {
	return p.remove(c, cuda.Pointer(at), true, false, cuda.InvalidValue)
}

// HostRegister pins memory.
func (p *Process) HostRegister(c cuda.ContextHandle, at uintptr, bytes uint64, _ bool) error {
	if err := p.enter(c); err != nil {
		return err
	}
	defer p.mu.Unlock()
	if p.Unregistered {
		return cuda.NotSupported
	}
	for _, r := range p.ranges {
		if r.vram == nil && cuda.Pointer(at) < r.at+cuda.Pointer(len(r.memory)) && r.at < cuda.Pointer(at)+cuda.Pointer(bytes) {
			return cuda.AlreadyRegistered
		}
	}
	memory := unsafe.Slice(*(**byte)(unsafe.Pointer(&at)), bytes)
	p.add(mapping{at: cuda.Pointer(at), memory: memory})
	return nil
}

// HostUnregister lets it go.
func (p *Process) HostUnregister(c cuda.ContextHandle, at uintptr) error {
	return p.remove(c, cuda.Pointer(at), false, false, cuda.NotRegistered)
}

// Range is the allocation around a pointer.
func (p *Process) Range(c cuda.ContextHandle, at cuda.Pointer) (cuda.Pointer, uint64, error) {
	if err := p.enter(c); err != nil {
		return 0, 0, err
	}
	defer p.mu.Unlock()
	for _, r := range p.ranges {
		if r.vram != nil && at >= r.at && at < r.at+cuda.Pointer(len(r.memory)) {
			return r.at, uint64(len(r.memory)), nil
		}
	}
	return 0, 0, cuda.NotFound
}

// Export names the allocation at a pointer.
func (p *Process) Export(c cuda.ContextHandle, at cuda.Pointer) (cuda.IPCHandle, error) {
	if err := p.enter(c); err != nil {
		return cuda.IPCHandle{}, err
	}
	defer p.mu.Unlock()
	for _, r := range p.ranges {
		if r.vram != nil && r.ours && at >= r.at && at < r.at+cuda.Pointer(len(r.memory)) {
			return p.machine.export(r.vram), nil
		}
	}
	return cuda.IPCHandle{}, cuda.InvalidValue
}

// Import maps an allocation of another process.
func (p *Process) Import(c cuda.ContextHandle, h cuda.IPCHandle) (cuda.Pointer, error) {
	if err := p.enter(c); err != nil {
		return 0, err
	}
	defer p.mu.Unlock()
	v := p.machine.lookup(h)
	switch {
	case v == nil:
		return 0, cuda.InvalidValue
	case v.owner == p:
		return 0, cuda.InvalidContext
	}
	for _, r := range p.ranges {
		if r.vram == v {
			return 0, cuda.AlreadyMapped
		}
	}
	if !v.use() {
		return 0, cuda.InvalidHandle
	}
	return p.place(v, false), nil
}

// Unimport unmaps it.
func (p *Process) Unimport(c cuda.ContextHandle, at cuda.Pointer) error {
	return p.remove(c, at, false, true, cuda.InvalidValue)
}

// Bytes is the memory at an address, or nil where not all of it is mapped.
func (p *Process) Bytes(at cuda.Pointer, length uint64) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.around(at)
	if r == nil {
		return nil
	}
	offset := uint64(at - r.at)
	if length > uint64(len(r.memory))-offset {
		return nil
	}
	return r.memory[offset : offset+length : offset+length]
}

// after is all that is mapped from an address on.
func (p *Process) after(at cuda.Pointer) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.around(at)
	if r == nil || at == r.at+cuda.Pointer(len(r.memory)) {
		return nil
	}
	return r.memory[at-r.at:]
}
