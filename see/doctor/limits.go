package doctor

import (
	"fmt"
	"strconv"
)

const (
	fewestOpenFiles  = 4096
	capIPCLock       = 14
	infinibandDir    = "/sys/class/infiniband"
	limitsUnreadable = "Look at the limits of this shell:\n    ulimit -a"
)

// openFiles judges the hard limit: a Go program raises its soft limit to it at start.
func openFiles(p *boundedHost) finding {
	limit, err := p.host.OpenFiles()
	if err != nil {
		return warn(err.Error(), limitsUnreadable)
	}
	found := fmt.Sprintf("up to %s", count(limit.Hard))
	if limit.Hard < fewestOpenFiles {
		return warn(found, fmt.Sprintf("Raise the limit to %d or more, in whatever starts the process:\n"+
			"    ulimit -Hn 65536                          # a root shell\n"+
			"    LimitNOFILE=65536                         # a systemd unit\n"+
			"    docker run --ulimit nofile=65536:65536 …", fewestOpenFiles))
	}
	return ok(found)
}

func lockedMemory(p *boundedHost) finding {
	limit, err := p.host.LockedMemoryBytes()
	if err != nil {
		return warn(err.Error(), limitsUnreadable)
	}
	devices, err := p.list(infinibandDir)
	switch found := byteLimit(limit); {
	case limit.Soft == Unlimited:
		return ok(found)
	case p.hasCapability(capIPCLock):
		return ok(found + ", which CAP_IPC_LOCK lifts")
	case err != nil || len(devices) == 0:
		return ok(found + ", enough without an RDMA card")
	default:
		return warn(found, "An RDMA card cannot register more memory than this. Lift the limit in whatever starts the process:\n"+
			"    ulimit -l unlimited                       # a root shell\n"+
			"    LimitMEMLOCK=infinity                     # a systemd unit\n"+
			"    docker run --ulimit memlock=-1 …")
	}
}

func byteLimit(limit ResourceLimit) string {
	size := func(n uint64) string {
		if n == Unlimited {
			return "unlimited"
		}
		return humanBytes(float64(n))
	}
	if limit.Soft == limit.Hard {
		return size(limit.Soft)
	}
	return fmt.Sprintf("%s (hard limit: %s)", size(limit.Soft), size(limit.Hard))
}

func count(n uint64) string {
	if n == Unlimited {
		return "unlimited"
	}
	return strconv.FormatUint(n, 10)
}
