package cell

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Identity is one process and no other that ever has its pid: pids come again,
// but not on the same boot, at the same tick, with the same program.
type Identity struct {
	PID int `json:"pid"`
	// StartTicks is when it started, in clock ticks since the boot.
	StartTicks uint64 `json:"start_ticks"`
	Boot       string `json:"boot"`
	Program    string `json:"program"`
}

// identify tells who has a pid now.
func identify(pid int) (Identity, error) {
	stat, err := readStat(pid)
	if err != nil {
		return Identity{}, err
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return Identity{}, err
	}
	id := Identity{PID: pid, StartTicks: stat.startTicks, Boot: strings.TrimSpace(string(boot))}
	// Of one that has ended, or is ending, the program cannot be asked for.
	program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil && stat.state != 'Z' && stat.state != 'X' {
		return Identity{}, err
	}
	id.Program = strings.TrimSuffix(program, " (deleted)")
	return id, nil
}

// Alive is whether that very process runs.
func (id Identity) Alive() bool {
	stat, err := readStat(id.PID)
	if err != nil || stat.over() {
		return false
	}
	now, err := identify(id.PID)
	if now.Program == "" {
		now.Program = id.Program // the ticks must do
	}
	return err == nil && now == id
}

// end stops a process that is not our child: it is asked, and killed when it
// stays longer than grace. Another process that has the pid is left alone.
func (id Identity) end(ctx context.Context, grace time.Duration) error {
	// FindProcess holds on to the process that has the pid now; only then is it
	// asked which one that is, and the signals reach no other.
	found, err := os.FindProcess(id.PID)
	if err != nil || !id.Alive() {
		return nil
	}
	defer func() { _ = found.Release() }()
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if err := found.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("cell: process %d: %v: %w", id.PID, s, err)
		}
		if id.wait(ctx, grace) {
			return nil
		}
	}
	return fmt.Errorf("cell: process %d (%s) does not end, not even by SIGKILL", id.PID, id.Program)
}

// wait returns whether the process is over before limit has passed.
func (id Identity) wait(ctx context.Context, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for id.Alive() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return !id.Alive()
		}
	}
	return true
}

// followers are processes of the same program that it has started, or that
// those have, and that are still in its group: vLLM's, when its first one was
// killed. A group's number is not given to others while a process is in it.
func (id Identity) followers() (found []Identity, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == id.PID {
			continue
		}
		stat, err := readStat(pid)
		if err != nil || stat.over() || stat.group != id.PID || stat.startTicks < id.StartTicks {
			continue
		}
		if other, err := identify(pid); err == nil && other.Boot == id.Boot && other.Program == id.Program {
			found = append(found, other)
		}
	}
	return found, nil
}

// family is what runs of a process and its followers.
func (id Identity) family() ([]Identity, error) {
	all, err := id.followers()
	if id.Alive() {
		all = append([]Identity{id}, all...)
	}
	return all, err
}

// PIDs are of the process and of those that it started, as they run now.
func (id Identity) PIDs() ([]int, error) {
	family, err := id.family()
	var pids []int
	for _, member := range family {
		pids = append(pids, member.PID)
	}
	return pids, err
}

// stat is what of /proc/PID/stat matters here.
type stat struct {
	state      byte
	group      int
	threads    uint64
	startTicks uint64
}

// over is whether the process has ended, and only its parent has not noticed.
// While other threads than the first are still ending, they keep its files.
func (s stat) over() bool { return (s.state == 'Z' || s.state == 'X') && s.threads <= 1 }

func readStat(pid int) (stat, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	return parseStat(string(text))
}

// parseStat reads the fields after the command's name, which may contain
// anything, parentheses too.
func parseStat(text string) (stat, error) {
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	const group, threads, startTime = 5 - 3, 20 - 3, 22 - 3 // counted as proc(5) does, from the third field on
	if len(fields) <= startTime {
		return stat{}, fmt.Errorf("cell: /proc/PID/stat has %d fields after the name: %q", len(fields), text)
	}
	s := stat{state: fields[0][0]}
	var err error
	if s.group, err = strconv.Atoi(fields[group]); err != nil {
		return stat{}, fmt.Errorf("cell: /proc/PID/stat: %w", err)
	}
	if s.threads, err = strconv.ParseUint(fields[threads], 10, 64); err != nil {
		return stat{}, fmt.Errorf("cell: /proc/PID/stat: %w", err)
	}
	if s.startTicks, err = strconv.ParseUint(fields[startTime], 10, 64); err != nil {
		return stat{}, fmt.Errorf("cell: /proc/PID/stat: %w", err)
	}
	return s, nil
}
