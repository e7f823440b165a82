package doorserver

import (
	"errors"

	"meridian/move/cuda"
	"meridian/move/mem"
	"meridian/move/mem/vram"
	"meridian/serve/door"
	"meridian/serve/door/doorpb"
)

// importVRAM opens GPU memory that the peer exports. Whose allocation a handle names
// CUDA does not say: a process that has another's handle can lend that one's memory,
// as it could write it.
func (c *conn) importVRAM(m *doorpb.CudaIPC, size uint64) (*mem.Section, *door.Problem) {
	lent := vram.Lent{Offset: m.GetOffset(), SizeBytes: size}
	switch {
	case c.server.options.VRAM == nil:
		return nil, noGPUs(cuda.ErrUnsupported)
	case len(m.GetHandle()) != len(lent.Handle):
		return nil, problem(door.CodeMalformed, "a handle of %d bytes, not %d", len(m.GetHandle()), len(lent.Handle))
	case len(m.GetUuid()) != len(lent.UUID):
		return nil, problem(door.CodeMalformed, "a GPU's UUID of %d bytes, not %d", len(m.GetUuid()), len(lent.UUID))
	}
	copy(lent.Handle[:], m.GetHandle())
	copy(lent.UUID[:], m.GetUuid())
	if c.vramDevice == 0 {
		// One for all that the process lends: of one allocation two stretches may not
		// overlap.
		c.vramDevice = c.server.newDevice()
	}
	lent.Device = c.vramDevice
	section, err := c.server.options.VRAM.Import(lent)
	var refused *cuda.Error
	switch {
	case err == nil:
		return section, nil
	case errors.Is(err, cuda.ErrUnsupported) || errors.Is(err, cuda.NoDevice):
		return nil, noGPUs(err)
	case errors.As(err, &refused):
		return nil, &door.Problem{Code: door.CodeDenied, Message: err.Error(), Hint: "agent and engine must see the same GPU and share PID and IPC namespaces"}
	}
	return nil, problemOf(err)
}

func noGPUs(err error) *door.Problem {
	p := problem(door.CodeUnsupported, "this agent does not take cuda_ipc memory: %v", err)
	p.Hint = "run meridian-accel where the engine's GPU is, or keep the cache in host memory"
	return p
}
