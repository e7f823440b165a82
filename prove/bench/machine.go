package bench

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Machine says in a line what this runs on.
func Machine() string {
	var name unix.Utsname
	kernel := "?"
	if unix.Uname(&name) == nil {
		kernel = unix.ByteSliceToString(name.Release[:])
	}
	return fmt.Sprintf("%d cores of %s, Linux %s, %s", len(UsableCores()), cpuModel(), kernel, runtime.GOARCH)
}

func cpuModel() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		if strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "an unnamed CPU"
}

// CPUTime is how long a process has computed so far.
func CPUTime(pid int) time.Duration {
	// The clock of another process, as clock_getcpuclockid makes it.
	const schedulerClock = 2
	var t unix.Timespec
	if unix.ClockGettime(int32(^pid<<3|schedulerClock), &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// Meter tells how much of the machine others use while something runs.
type Meter struct {
	children  []int
	start     time.Time
	all, ours time.Duration
}

// StartMeter counts as ours this process, the children named, and those that
// end meanwhile.
func StartMeter(children []int) Meter {
	return Meter{children, time.Now(), machineTime(), familyTime(children)}
}

// Others is how many cores others used since start, on average.
func (m Meter) Others() float64 {
	used := machineTime() - m.all - (familyTime(m.children) - m.ours)
	return Rounded(max(0, used.Seconds()/time.Since(m.start).Seconds()))
}

// familyTime is what this process, its ended children and some of the living
// have computed.
func familyTime(children []int) time.Duration {
	total := CPUTime(os.Getpid())
	for _, pid := range children {
		total += CPUTime(pid)
	}
	var ended syscall.Rusage
	if syscall.Getrusage(unix.RUSAGE_CHILDREN, &ended) == nil {
		total += time.Duration(ended.Utime.Nano() + ended.Stime.Nano())
	}
	return total
}

// machineTime is what all cores together have computed since the machine
// started.
func machineTime() time.Duration {
	const tick = time.Second / 100 // USER_HZ, the same on every Linux
	text, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(line)
	var total time.Duration
	for i, field := range fields {
		// cpu user nice system idle iowait irq softirq steal …
		if i == 0 || i == 4 || i == 5 || i > 8 {
			continue
		}
		ticks, _ := strconv.ParseInt(field, 10, 64)
		total += time.Duration(ticks) * tick
	}
	return total
}
