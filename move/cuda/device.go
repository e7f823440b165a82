package cuda

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
)

// Options say which device to open.
type Options struct {
	// Driver is CUDA's, or a test's; nil loads libcuda.
	Driver Driver
	// UUID names the device; the zero UUID is the first one.
	UUID UUID
}

// Device is one GPU with its primary context. Its methods may be called from
// several goroutines.
type Device struct {
	Description
	driver  Driver
	ordinal int
	context ContextHandle
	bounce  bounce

	mu      sync.Mutex // protects the rest
	counts  Counts
	imports map[IPCHandle]*Import
	kernels *Kernels
	closed  bool
}

// Counts is what a device has open.
type Counts struct {
	Allocations, Pinned, Imports, Streams, Events, Modules int
}

// Total is how many things that is.
func (c Counts) Total() int {
	return c.Allocations + c.Pinned + c.Imports + c.Streams + c.Events + c.Modules
}

func (c Counts) String() string {
	return fmt.Sprintf("%d allocations, %d pinned, %d imports, %d streams, %d events, %d modules",
		c.Allocations, c.Pinned, c.Imports, c.Streams, c.Events, c.Modules)
}

// Open opens a device. The caller closes it.
func Open(o Options) (*Device, error) {
	driver := o.Driver
	if driver == nil {
		var err error
		if driver, err = load(); err != nil {
			return nil, err
		}
	}
	ordinal, description, err := find(driver, o.UUID)
	if err != nil {
		return nil, err
	}
	context, err := driver.Retain(ordinal)
	if err != nil {
		return nil, failed(err, "open %s", description.UUID)
	}
	return &Device{Description: description, driver: driver, ordinal: ordinal, context: context, imports: make(map[IPCHandle]*Import)}, nil
}

// List describes the devices that this process may use; a nil driver is libcuda.
func List(driver Driver) ([]Description, error) {
	if driver == nil {
		var err error
		if driver, err = load(); err != nil {
			return nil, err
		}
	}
	n, err := driver.Devices()
	if err != nil {
		return nil, failed(err, "count the devices")
	}
	list := make([]Description, n)
	for i := range list {
		if list[i], err = driver.Describe(i); err != nil {
			return nil, failed(err, "ask what device %d is", i)
		}
	}
	return list, nil
}

func find(driver Driver, uuid UUID) (int, Description, error) {
	list, err := List(driver)
	if err != nil {
		return 0, Description{}, err
	}
	for i, d := range list {
		if d.UUID == uuid || uuid == (UUID{}) {
			return i, d, nil
		}
	}
	if len(list) == 0 {
		return 0, Description{}, failed(NoDevice, "open a device")
	}
	return 0, Description{}, failed(NoDevice, "open %s, which is none of the %d devices that this process sees", uuid, len(list))
}

// Counts says what is open now.
func (d *Device) Counts() Counts {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.counts
}

// Free says how much of the device's memory is free, and how much there is.
func (d *Device) Free() (free, total uint64, err error) {
	free, total, err = d.driver.Free(d.context)
	return free, total, failed(err, "ask for free memory")
}

// Close gives the context back. What is still open then is an error, and a leak
// of the caller that opened it.
func (d *Device) Close() error {
	d.mu.Lock()
	kernels := d.kernels
	closed := d.closed
	d.closed, d.kernels = true, nil
	d.mu.Unlock()
	if closed {
		return nil
	}
	problems := []error{d.bounce.close()}
	if kernels != nil {
		problems = append(problems, kernels.close())
	}
	if c := d.Counts(); c.Total() > 0 {
		problems = append(problems, fmt.Errorf("cuda: %s is closed with things open: %s", d.UUID, c))
	}
	problems = append(problems, failed(d.driver.Release(d.ordinal), "release %s", d.UUID))
	return errors.Join(problems...)
}

// opened counts what open makes, unless it fails. Nothing is opened on a device
// that is closed.
func (d *Device) opened(counter *int, open func() error) error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return ErrClosed
	}
	*counter++
	d.mu.Unlock()
	err := open()
	if err != nil {
		d.gone(counter)
	}
	return err
}

// gone is the other half of opened. What CUDA did not close is gone as well: its
// context is lost.
func (d *Device) gone(counter *int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	*counter--
}

// String is the form that nvidia-smi prints and CUDA_VISIBLE_DEVICES takes.
func (u UUID) String() string {
	h := hex.EncodeToString(u[:])
	return strings.Join([]string{"GPU-" + h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-")
}
