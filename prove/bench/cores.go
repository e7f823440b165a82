package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// UsableCores lists the cores that this process started with.
func UsableCores() []int { return startCores }

// startCores is read before anything is pinned.
var startCores = func() (cores []int) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return []int{0}
	}
	for core := 0; len(cores) < set.Count(); core++ {
		if set.IsSet(core) {
			cores = append(cores, core)
		}
	}
	return cores
}()

// Halves gives each side cores of its own: half of them. One core cannot be
// shared out: both sides get it.
func Halves() (forPosting, forServing []int) {
	cores := UsableCores()
	if len(cores) < 2 {
		return cores, cores
	}
	middle := len(cores) / 2
	return cores[:middle], cores[middle:]
}

// Pin moves every thread of a process to the cores; threads to come inherit it.
func Pin(pid int, cores []int) error {
	var set unix.CPUSet
	for _, core := range cores {
		set.Set(core)
	}
	threads, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "task"))
	if err != nil {
		return fmt.Errorf("bench: threads of %d: %w", pid, err)
	}
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		if err != nil {
			continue
		}
		if err := unix.SchedSetaffinity(id, &set); err != nil && err != unix.ESRCH {
			return fmt.Errorf("bench: pin thread %d: %w", id, err)
		}
	}
	return nil
}

// PlacePair pins two processes to their halves, or lets them run anywhere.
func PlacePair(postingPID, servingPID int, pinned bool) error {
	forPosting, forServing := UsableCores(), UsableCores()
	if pinned {
		forPosting, forServing = Halves()
	}
	if err := Pin(postingPID, forPosting); err != nil {
		return err
	}
	return Pin(servingPID, forServing)
}
