// Package doctor answers what a machine has and what each thing enables for Meridian.
//
// It only looks: it reads bounded amounts of /proc, /sys, /dev and the library directories, asks for a few process
// limits and running agents for their tiers, and executes nothing. A file that is missing, unreadable or nonsense becomes a finding, never a failure.
//
//	Host ──> Examine ──> Report ── WriteText: a screen for people
//	                            └─ JSON: {"checks": [{"name", "status", "found", "enables", "advice"}]}
//
// What Meridian does today and what is planned is said in one place, the examinations below.
package doctor

import (
	"context"
	"fmt"
	"strings"
)

// Status says whether a thing is there and fit for use.
type Status string

const (
	// StatusOK means there is nothing to do.
	StatusOK Status = "ok"
	// StatusWarn means that something will get in the way; the check's Advice says what to type.
	StatusWarn Status = "warn"
	// StatusAbsent means that the machine does not have it, which may be quite all right.
	StatusAbsent Status = "absent"
)

// Check is one thing looked at. Advice is empty when Status is ok and never empty when it is warn; in it, lines that
// begin with four spaces are commands.
type Check struct {
	Name    string `json:"name"`
	Status  Status `json:"status"`
	Found   string `json:"found"`
	Enables string `json:"enables"`
	Advice  string `json:"advice,omitempty"`
}

// Report holds every check, always all of them and always in the same order.
type Report struct {
	Checks []Check `json:"checks"`
}

type finding struct {
	status Status
	found  string
	advice string
}

type examination struct {
	name    string
	enables string
	look    func(*boundedHost) finding
}

var examinations = []examination{
	{"cores", "Today: checksums and copies of every transfer, a TCP stream to a peer for each core up to 8; the reference engine.", cores},
	{"memory", "Today: KV arenas of the reference engine and memory that other engines lend, the object cache of an agent.", memory},
	{"huge pages", "Planned: KV arenas in DRAM with fewer TLB misses.", hugePages},
	{"NUMA nodes", "Planned: arenas placed near the card that reads them.", numaNodes},
	{"/dev/shm", "Today: engines beside an agent; vLLM, NCCL and UCX need it, Meridian's own arenas are memfds.", sharedMemory},
	{"open files", "Today: agents with many peers, streams and lent memfds; gateways with many clients.", openFiles},
	{"locked memory", "Planned: DRAM registered with an RDMA card.", lockedMemory},
	{"memfd", "Today: engines lend DRAM to the agent as sealed memfds, and agents of one machine to each other.", memfd},
	{"pidfd", "Today: the agent knows which engine is at its door, and that it is still the same one.", pidfd},
	{"ptrace scope", "Today: borrowed memory, such as vLLM's, read and written in the engine's process with process_vm_readv and process_vm_writev.", ptraceScope},
	{"PID namespace", "Today: borrowed memory; agent and engine must see each other's process ids.", pidNamespace},
	{"tiers", "Today: what engines keep of their caches outlives memory, where an agent keeps it on disk or in S3, too.", tiers},
	{"CUDA", "Today: KV cache moved from and to GPU memory, by bin/meridian-accel.", cuda},
	{"RDMA", "Planned: transfers between hosts through UCX.", rdma},
	{"UCX", "Planned: the UCX adapter.", ucx},
	{"NIXL", "Today: a peer to measure beside; `meridian bench` takes the one that `make peers` installs. Planned: the NIXL adapter, to talk to engines that use NIXL.", nixl},
	{"Mooncake", "Today: a peer to measure beside; `meridian bench` takes the one that `make peers` installs. Planned: the Mooncake adapter, to talk to Mooncake's transfer engine and store.", mooncake},
	{"UCX memory hooks", "Planned: the UCX and NIXL adapters. It concerns today every engine that loads UCX.", ucxMemoryHooks},
}

const maxFoundBytes = 1000

// Examine looks at h until ctx ends; what was not reached by then is reported as such.
func Examine(ctx context.Context, h Host) Report {
	p := &boundedHost{ctx: ctx, host: h}
	report := Report{Checks: make([]Check, 0, len(examinations))}
	for _, x := range examinations {
		f := p.examine(x)
		report.Checks = append(report.Checks, Check{
			Name: x.name, Status: f.status, Found: shorten(f.found, maxFoundBytes), Enables: x.enables, Advice: f.advice,
		})
	}
	return report
}

// examine discards what an interrupted look came up with: a search cut short would read as "absent".
func (p *boundedHost) examine(x examination) finding {
	var f finding
	if p.ctx.Err() == nil {
		f = x.look(p)
	}
	if err := p.ctx.Err(); err != nil {
		return warn(fmt.Sprintf("not examined: %v", err), "Run it again and let it finish:\n    meridian doctor")
	}
	return f
}

func ok(found string) finding { return finding{status: StatusOK, found: found} }

func warn(found, advice string) finding {
	return finding{status: StatusWarn, found: found, advice: advice}
}

func absent(found, advice string) finding {
	return finding{status: StatusAbsent, found: found, advice: advice}
}

// shorten bounds text that files and variables may have made long, and keeps it valid UTF-8.
func shorten(text string, mostBytes int) string {
	if len(text) > mostBytes {
		text = text[:mostBytes] + "…"
	}
	return strings.ToValidUTF8(text, "?")
}
