package file

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"meridian/move/mem"
)

// disk is a file in use: as its owner opened it, and past the page cache where
// that works.
type disk struct {
	buffered syscall.RawConn
	file     *os.File // the direct one, ours; nil when there is none
	direct   syscall.RawConn
	align    uint64
}

func openDisk(owner *os.File, direct bool) (*disk, error) {
	d := &disk{}
	var err error
	if d.buffered, err = owner.SyscallConn(); err != nil {
		return nil, fmt.Errorf("file: %s: %w", owner.Name(), err)
	}
	if !direct {
		return d, nil
	}
	err = d.buffered.Control(func(fd uintptr) { d.openDirect(int(fd), owner.Name()) })
	return d, err
}

// openDirect leaves d without a direct file where the file system has none.
func (d *disk) openDirect(fd int, name string) {
	var stat unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &stat)
	d.align = 4096
	if err == nil && stat.Mask&unix.STATX_DIOALIGN != 0 {
		d.align = uint64(max(stat.Dio_mem_align, stat.Dio_offset_align))
	}
	if d.align == 0 || d.align&(d.align-1) != 0 {
		return
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return
	}
	again, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), flags&unix.O_ACCMODE|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	d.file = os.NewFile(uintptr(again), name)
	if d.direct, err = d.file.SyscallConn(); err != nil {
		d.file.Close()
		d.file, d.direct = nil, nil
	}
}

// close also takes a nil disk, which is memory.
func (d *disk) close() error {
	if d == nil || d.file == nil {
		return nil
	}
	return d.file.Close()
}

// fits reports whether a batch can go past the page cache.
func (d *disk) fits(memory [][]byte, offset uint64) bool {
	if d.direct == nil {
		return false
	}
	all := offset
	for _, m := range memory {
		all |= uint64(uintptr(unsafe.Pointer(unsafe.SliceData(m)))) | uint64(len(m))
	}
	return all&(d.align-1) == 0
}

type vectorCall func(fd int, iovs [][]byte, offset int64) (int, error)

func (d *disk) read(memory [][]byte, offset uint64) error {
	return d.transfer(memory, offset, unix.Preadv)
}

func (d *disk) write(memory [][]byte, offset uint64) error {
	return d.transfer(memory, offset, unix.Pwritev)
}

// transfer moves one batch, directly if it fits. It uses up the slice of
// memory. What the direct file moves only in part, or refuses after all, is
// left to the other.
func (d *disk) transfer(memory [][]byte, offset uint64, call vectorCall) error {
	conn := d.buffered
	if d.fits(memory, offset) {
		conn = d.direct
	}
	for len(memory) > 0 {
		var n int
		var err error
		if gone := conn.Control(func(fd uintptr) { n, err = call(int(fd), memory, int64(offset)) }); gone != nil {
			return gone
		}
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			continue
		case errors.Is(err, unix.EINVAL) && conn == d.direct:
		case err != nil:
			return err
		case n <= 0:
			return fmt.Errorf("%w: the file ends at %d: %w", mem.ErrBounds, offset, io.ErrUnexpectedEOF)
		}
		n = max(n, 0)
		offset += uint64(n)
		memory = after(memory, n)
		conn = d.buffered
	}
	return nil
}

// after is what n bytes leave of a batch.
func after(memory [][]byte, n int) [][]byte {
	for len(memory) > 0 && n >= len(memory[0]) {
		n -= len(memory[0])
		memory = memory[1:]
	}
	if n > 0 {
		memory[0] = memory[0][n:]
	}
	return memory
}

// sync waits until the data is on the disk.
func (d *disk) sync() error {
	var err error
	if gone := d.buffered.Control(func(fd uintptr) { err = unix.Fdatasync(int(fd)) }); gone != nil {
		return gone
	}
	if err != nil {
		return fmt.Errorf("file: fdatasync: %w", err)
	}
	return nil
}
