package doctor

import (
	"context"
	"io/fs"
	"math"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Host is everything the examination may ask; all fields are needed.
type Host struct {
	// Files is rooted at "/". Where it implements fs.ReadLinkFS, links of /proc are read too.
	Files fs.FS
	// LookupEnv is os.LookupEnv of the process examined.
	LookupEnv func(name string) (string, bool)
	// UsableCPUs counts the CPUs this process may run on.
	UsableCPUs func() int
	// OpenFiles is RLIMIT_NOFILE.
	OpenFiles func() (ResourceLimit, error)
	// LockedMemoryBytes is RLIMIT_MEMLOCK.
	LockedMemoryBytes func() (ResourceLimit, error)
	// Tiers are those of agents that run, with an error for agents that could not be asked.
	Tiers func(context.Context) ([]Tier, error)
}

// ResourceLimit is one limit of getrlimit(2).
type ResourceLimit struct {
	Soft, Hard uint64
}

// Unlimited is the value of a ResourceLimit that is none.
const Unlimited uint64 = math.MaxUint64

// ThisHost is the machine and process that runs, and agents whose tiers are asked for.
func ThisHost(tiers func(context.Context) ([]Tier, error)) Host {
	return Host{
		Files:             os.DirFS("/"),
		LookupEnv:         os.LookupEnv,
		UsableCPUs:        runtime.NumCPU,
		OpenFiles:         func() (ResourceLimit, error) { return resourceLimit(unix.RLIMIT_NOFILE) },
		LockedMemoryBytes: func() (ResourceLimit, error) { return resourceLimit(unix.RLIMIT_MEMLOCK) },
		Tiers:             tiers,
	}
}

func resourceLimit(resource int) (ResourceLimit, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(resource, &limit); err != nil {
		return ResourceLimit{}, os.NewSyscallError("getrlimit", err)
	}
	return ResourceLimit{Soft: limit.Cur, Hard: limit.Max}, nil
}
