// Package cudatest is a GPU for tests, made of host memory, and processes that use
// it. It answers as CUDA does where code could come to depend on it: addresses are
// a process's own, streams run beside one another, what lies outside of every
// allocation loses the context, memory that was exported lives until the last
// importer has closed it, and a process cannot open a handle of its own.
package cudatest

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"meridian/move/cuda"
)

// Machine is a host with GPUs, which processes share.
type Machine struct {
	devices []*gpu

	mu       sync.Mutex // protects the rest
	exported map[cuda.IPCHandle]*vram
}

// gpu is one device.
type gpu struct {
	description cuda.Description
	bytes       uint64

	mu    sync.Mutex // protects taken
	taken uint64
}

// vram is an allocation. It lives as long as a process has it mapped.
type vram struct {
	gpu    *gpu
	owner  *Process
	memory []byte

	mu   sync.Mutex // protects uses
	uses int
}

// NewMachine makes one with GPUs of so many bytes each.
func NewMachine(gpus int, bytes uint64) *Machine {
	m := &Machine{exported: make(map[cuda.IPCHandle]*vram)}
	for i := range gpus {
		d := cuda.Description{Name: fmt.Sprintf("test GPU %d", i), Multiprocessors: 4, Major: 9}
		_, _ = rand.Read(d.UUID[:])
		m.devices = append(m.devices, &gpu{description: d, bytes: bytes})
	}
	return m
}

// Taken is how much of a GPU's memory is in use.
func (m *Machine) Taken(ordinal int) uint64 {
	g := m.devices[ordinal]
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.taken
}

func (g *gpu) alloc(owner *Process, bytes uint64) (*vram, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if bytes == 0 {
		return nil, cuda.InvalidValue
	}
	if bytes > g.bytes-g.taken {
		return nil, cuda.OutOfMemory
	}
	memory, err := mapped(bytes)
	if err != nil {
		return nil, err
	}
	g.taken += bytes
	return &vram{gpu: g, owner: owner, memory: memory, uses: 1}, nil
}

// mapped is memory that Go's collector does not know, as a driver's is not.
func mapped(bytes uint64) ([]byte, error) {
	memory, err := unix.Mmap(-1, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, cuda.OutOfMemory
	}
	return memory, nil
}

// use maps an allocation once more, unless it is gone.
func (v *vram) use() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.uses == 0 {
		return false
	}
	v.uses++
	return true
}

// drop is the other half of use, and of alloc.
func (v *vram) drop() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.uses--; v.uses > 0 {
		return
	}
	v.gpu.mu.Lock()
	v.gpu.taken -= uint64(len(v.memory))
	v.gpu.mu.Unlock()
	_ = unix.Munmap(v.memory)
}

// export returns the one handle of an allocation.
func (m *Machine) export(v *vram) cuda.IPCHandle {
	m.mu.Lock()
	defer m.mu.Unlock()
	for h, exported := range m.exported {
		if exported == v {
			return h
		}
	}
	var h cuda.IPCHandle
	_, _ = rand.Read(h[:])
	binary.LittleEndian.PutUint64(h[:], uint64(len(m.exported)))
	m.exported[h] = v
	return h
}

func (m *Machine) lookup(h cuda.IPCHandle) *vram {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.exported[h]
}

func (m *Machine) withdraw(v *vram) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for h, exported := range m.exported {
		if exported == v {
			delete(m.exported, h)
		}
	}
}
