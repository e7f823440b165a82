package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

const (
	yamaFile     = "/proc/sys/kernel/yama/ptrace_scope"
	ownStatus    = "/proc/self/status"
	ownPIDSpace  = "/proc/self/ns/pid"
	firstProcess = "/proc/1/comm"

	// The kernel gives the initial PID namespace this inode number for good (PID_NS_INIT_INO).
	initialPIDSpace = "pid:[4026531836]"

	capSysPtrace = 19

	sharePIDSpace = "Fine when agent and engine run in the same container. Otherwise start them in one PID namespace:\n" +
		"    docker run --pid=container:ENGINE …       # or --pid=host\n" +
		"    shareProcessNamespace: true               # in a Kubernetes pod's spec"
)

// ptraceScope judges Yama's setting, to which process_vm_readv(2) is subject like an attaching debugger.
func ptraceScope(p *boundedHost) finding {
	f := p.yama()
	if p.statusField("Seccomp") == "2" {
		f.found += "; a seccomp filter is active and may refuse process_vm_readv all the same"
	}
	return f
}

func (p *boundedHost) yama() finding {
	scope, err := p.word(yamaFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ok("no Yama in this kernel: processes of one user may read each other's memory")
	case err != nil:
		return unreadable(yamaFile, err)
	}
	const relax = "    sysctl -w kernel.yama.ptrace_scope=1"
	switch scope {
	case "0":
		return ok("0: processes of one user may read each other's memory")
	case "1":
		return ok("1: only where the process read from allows it, which the engine's client does with PR_SET_PTRACER")
	case "2":
		const found = "2: only with CAP_SYS_PTRACE"
		if p.hasCapability(capSysPtrace) {
			return ok(found + ", which this process has")
		}
		return warn(found, "Relax it as root, or give the agent that capability; engines that lend memfds do without it:\n"+
			relax+"\n    docker run --cap-add SYS_PTRACE …")
	case "3":
		return warn("3: no process may, until the next boot",
			"Lower it in /etc/sysctl.d and reboot, or let engines lend memfds; after the reboot this must print 0 or 1:\n"+
				"    sysctl kernel.yama.ptrace_scope")
	default:
		return warn(malformed(yamaFile, scope).Error(), "Set a value that Yama documents, as root:\n"+relax)
	}
}

// pidNamespace goes by the inode of the namespace. NSpid and process 1 are second best: a container that mounts its
// own /proc shows one NSpid, like the host, and anything may call itself init.
func pidNamespace(p *boundedHost) finding {
	space, err := fs.ReadLink(p.host.Files, rooted(ownPIDSpace))
	if err == nil {
		if space == initialPIDSpace {
			return ok("the initial one, which sees all processes of this host")
		}
		return warn(space+", not the host's: this process sees only what runs in its container", sharePIDSpace)
	}
	if ids := strings.Fields(p.statusField("NSpid")); len(ids) > 1 {
		return warn(fmt.Sprintf("nested: this process has %d ids (%s)", len(ids), strings.Join(ids, " ")), sharePIDSpace)
	}
	first, err := p.word(firstProcess)
	switch {
	case err != nil:
		return unreadable(firstProcess, err)
	case first == "systemd" || first == "init":
		return ok(fmt.Sprintf("probably the initial one: process 1 is %s", first))
	default:
		return warn(fmt.Sprintf("probably a container's: process 1 is %q", first), sharePIDSpace)
	}
}

func (p *boundedHost) hasCapability(bit uint) bool {
	effective, err := strconv.ParseUint(p.statusField("CapEff"), 16, 64)
	return err == nil && effective>>bit&1 == 1
}

// statusField is empty when the field cannot be had.
func (p *boundedHost) statusField(name string) string {
	text, _ := p.read(ownStatus)
	return lineAfter(text, name+":")
}

// lineAfter is the rest of the first line that begins so, trimmed; empty without one.
func lineAfter(text, beginning string) string {
	for line := range strings.Lines(text) {
		if rest, found := strings.CutPrefix(line, beginning); found {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}
