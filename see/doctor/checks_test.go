package doctor

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// checkCase expects of one check its status and parts of its texts.
type checkCase struct {
	name    string
	machine machine
	check   string
	status  Status
	found   string
	advice  string
}

func requireChecks(t *testing.T, cases []checkCase) {
	t.Helper()
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			c := examine(t, tc.machine).named(t, tc.check)
			if c.Status != tc.status || !strings.Contains(c.Found, tc.found) || !strings.Contains(c.Advice, tc.advice) {
				t.Errorf("%s is %s, want %s\nfound  %s\nwant   …%s…\nadvice %s\nwant   …%s…",
					c.Name, c.Status, tc.status, c.Found, tc.found, c.Advice, tc.advice)
			}
		})
	}
}

func limited(m machine, change func(*machine)) machine {
	change(&m)
	return m
}

// unlinked cannot tell its PID namespace by the link of /proc.
func unlinked(m machine) machine {
	m.links = nil
	return m
}

func serverWithCardsDown(n int) machine {
	files := make(map[string]string)
	for i := range n {
		files[fmt.Sprintf("%s/mlx5_%d/ports/1/state", infinibandDir, i)] = "1: DOWN\n"
	}
	return gpuServer().with(files)
}

func TestCoreChecks(t *testing.T) {
	requireChecks(t, []checkCase{
		{"cores usable and present", laptop(), "cores", StatusOK, "8 usable by this process of 8 present", ""},
		{"cores narrowed to one", limited(laptop(), func(m *machine) { m.usableCPUs = 1 }), "cores", StatusWarn, "1 usable", "taskset -cp 0-1"},
		{"quota of an ancestor binds", laptop().with(map[string]string{
			"/sys/fs/cgroup/user.slice/session-1.scope/cpu.max": "max 100000",
			"/sys/fs/cgroup/user.slice/cpu.max":                 "250000 100000",
		}), "cores", StatusOK, "cgroup quota of 2.5 cores", ""},
		{"quota of its own binds", laptop().with(map[string]string{
			"/sys/fs/cgroup/user.slice/session-1.scope/cpu.max": "350000 100000",
			"/sys/fs/cgroup/user.slice/cpu.max":                 "500000 100000",
		}), "cores", StatusOK, "cgroup quota of 3.5 cores", ""},
		{"nonsense quota", laptop().with(map[string]string{"/sys/fs/cgroup/cpu.max": "many"}), "cores", StatusWarn, `/sys/fs/cgroup/cpu.max: cannot make sense of "many"`, "cat /sys/fs/cgroup/cpu.max"},
		{"cgroup v1 is said", laptop().with(map[string]string{
			"/sys/fs/cgroup/cgroup.controllers": "", "/sys/fs/cgroup/memory/memory.limit_in_bytes": "1",
		}), "memory", StatusOK, "limits of cgroup v1 are not read", ""},
	})
}

func TestTierChecks(t *testing.T) {
	keeps := func(unasked error, tiers ...Tier) machine {
		return limited(laptop(), func(m *machine) { m.tiers, m.unasked = tiers, unasked })
	}
	disk, s3 := Tier{Agent: "a", Name: "disk"}, Tier{Agent: "a", Name: "s3"}
	broken := Tier{Agent: "b", Name: "disk", Problem: "it cannot be opened: read-only file system"}
	requireChecks(t, []checkCase{
		{"none", keeps(nil), "tiers", StatusAbsent, "no agent that runs here", ""},
		{"both work", keeps(nil, disk, s3), "tiers", StatusOK, "disk of a; s3 of a", ""},
		{"one does not", keeps(nil, disk, broken), "tiers", StatusWarn, "disk of b: it cannot be opened: read-only file system; disk of a", "meridian store stat"},
		{"an agent hangs", keeps(errors.New("c does not answer"), disk), "tiers", StatusWarn, "c does not answer; disk of a", "meridian logs"},
	})
}

func TestMemoryChecks(t *testing.T) {
	requireChecks(t, []checkCase{
		{"memory", laptop(), "memory", StatusOK, "15.62 GiB total, 11.72 GiB available", ""},
		{"memory limit", lockedContainer(), "memory", StatusWarn, "cgroup limit of 512 MiB", "docker update --memory"},
		{"nonsense memory limit", laptop().with(map[string]string{"/sys/fs/cgroup/memory.max": "-7"}), "memory", StatusWarn, `/sys/fs/cgroup/memory.max: cannot make sense of "-7"`, "cat /sys/fs/cgroup/memory.max"},
		{"huge pages unheard of", laptop().with(map[string]string{thpDir + "/enabled": "", thpDir + "/shmem_enabled": "never"}), "huge pages", StatusAbsent, "transparent huge pages: unknown, for memfds: unknown", "sysctl -w vm.nr_hugepages"},
		{"huge pages all taken", laptop().with(map[string]string{
			memInfoFile: "MemTotal: 1 kB\nMemAvailable: 1 kB\nHugePages_Total: 8\nHugePages_Free: 0\nHugepagesize: 2048 kB\n",
		}), "huge pages", StatusWarn, "8 of 2 MiB reserved, all in use", "sysctl -w vm.nr_hugepages"},
		{"huge pages free", gpuServer(), "huge pages", StatusOK, "4096 of 2 MiB reserved, 4000 free; transparent huge pages: madvise, for memfds: never", ""},
		{"two NUMA nodes", gpuServer(), "NUMA nodes", StatusOK, "2 nodes (node 0: CPUs 0-63; node 1: CPUs 64-127)", ""},
		{"many NUMA nodes", gpuServer().with(map[string]string{onlineNodes: "0-8,10", "/sys/devices/system/node/node1/cpulist": "\n"}), "NUMA nodes", StatusOK, "10 nodes (node 0: CPUs 0-63; node 1: no CPUs; node 2: CPUs unknown; ", ""},
		{"shm by default", laptop(), "/dev/shm", StatusOK, "7.812 GiB, the default", ""},
		{"shm not mounted", laptop().with(map[string]string{mountInfoFile: "1 1 0:1 / / rw - ext4 /dev/sda rw\n"}), "/dev/shm", StatusAbsent, "no tmpfs", "mount -t tmpfs"},
		{"shm of nonsense size", laptop().with(map[string]string{mountInfoFile: "1 1 0:1 / /dev/shm rw - tmpfs shm rw,size=big\n"}), "/dev/shm", StatusWarn, `cannot make sense of "size=big"`, "ls -l " + mountInfoFile},
		{"shm mounted over", laptop().with(map[string]string{
			mountInfoFile: "1 1 0:1 / /dev/shm rw - tmpfs shm rw,size=65536k\n2 1 0:2 / /dev/shm rw - tmpfs shm rw,size=8g\n",
		}), "/dev/shm", StatusOK, "tmpfs of 8 GiB", ""},
	})
}

func TestLimitChecks(t *testing.T) {
	requireChecks(t, []checkCase{
		{"soft limit is raised by Go", limited(laptop(), func(m *machine) { m.openFiles = ResourceLimit{Soft: 1024, Hard: 524288} }), "open files", StatusOK, "up to 524288", ""},
		{"open files without limit", limited(laptop(), func(m *machine) { m.openFiles = ResourceLimit{Unlimited, Unlimited} }), "open files", StatusOK, "unlimited", ""},
		{"no card, no need to lock", laptop(), "locked memory", StatusOK, "8 MiB, enough without an RDMA card", ""},
		{"a card and no limit", limited(gpuServer(), func(m *machine) { m.lockedMemoryBytes = ResourceLimit{Unlimited, Unlimited} }), "locked memory", StatusOK, "unlimited", ""},
		{"a card needs to lock", gpuServer(), "locked memory", StatusWarn, "8 MiB", "docker run --ulimit memlock=-1"},
		{"soft and hard differ", limited(gpuServer(), func(m *machine) { m.lockedMemoryBytes = ResourceLimit{64 << 10, Unlimited} }), "locked memory", StatusWarn, "64 KiB (hard limit: unlimited)", "ulimit -l"},
		{"CAP_IPC_LOCK", gpuServer().with(map[string]string{ownStatus: "CapEff:\t0000000000004000\n"}), "locked memory", StatusOK, "CAP_IPC_LOCK", ""},
	})
}

func TestKernelChecks(t *testing.T) {
	requireChecks(t, []checkCase{
		{"first kernel with seals", laptop().with(map[string]string{osRelease: "3.17-rc1"}), "memfd", StatusOK, "kernel 3.17", ""},
		{"kernel before seals", laptop().with(map[string]string{osRelease: "3.16.85"}), "memfd", StatusAbsent, "came with 3.17", "uname -r"},
		{"first kernel with peer pidfd", laptop().with(map[string]string{osRelease: "6.5.0"}), "pidfd", StatusOK, "kernel 6.5", ""},
		{"kernel before peer pidfd", laptop().with(map[string]string{osRelease: "6.4.16"}), "pidfd", StatusWarn, "SO_PEERPIDFD came with 6.5", "6.5 or later"},
		{"kernel before pidfd", laptop().with(map[string]string{osRelease: "4.18.0-553.el8"}), "pidfd", StatusAbsent, "pidfd_open came with 5.3", "uname -r"},
		{"kernel without a minor number", laptop().with(map[string]string{osRelease: "6"}), "memfd", StatusWarn, `cannot make sense of "6"`, "ls -l " + osRelease},
	})
}

func TestProcessChecks(t *testing.T) {
	requireChecks(t, []checkCase{
		{"no Yama", laptop().with(map[string]string{yamaFile: ""}), "ptrace scope", StatusOK, "no Yama", ""},
		{"scope 0", laptop().with(map[string]string{yamaFile: "0\n"}), "ptrace scope", StatusOK, "0: ", ""},
		{"scope 1", laptop(), "ptrace scope", StatusOK, "PR_SET_PTRACER", ""},
		{"scope 2", lockedContainer(), "ptrace scope", StatusWarn, "a seccomp filter is active", "sysctl -w kernel.yama.ptrace_scope=1"},
		{"scope 2 with the capability", lockedContainer().with(map[string]string{ownStatus: "CapEff:\t0000000000080000\n"}), "ptrace scope", StatusOK, "which this process has", ""},
		{"scope 3", laptop().with(map[string]string{yamaFile: "3\n"}), "ptrace scope", StatusWarn, "until the next boot", "reboot"},
		{"container", lockedContainer(), "PID namespace", StatusWarn, "pid:[4026532448]", "shareProcessNamespace: true"},
		{"nested, seen from outside", unlinked(laptop().with(map[string]string{ownStatus: "NSpid:\t4242\t7\n"})), "PID namespace", StatusWarn, "2 ids (4242 7)", "--pid=container:ENGINE"},
		{"process 1 is init", unlinked(laptop()), "PID namespace", StatusOK, "process 1 is systemd", ""},
		{"process 1 is no init", unlinked(lockedContainer()), "PID namespace", StatusWarn, `process 1 is "meridian"`, "--pid="},
	})
}

func TestDeviceChecks(t *testing.T) {
	requireChecks(t, []checkCase{
		{"CUDA", gpuServer(), "CUDA", StatusOK, "GPU devices: 2; kernel driver 570.86.15; /lib/x86_64-linux-gnu/libcuda.so.570.86.15", ""},
		{"GPU without library", gpuServer().with(map[string]string{
			"/lib/x86_64-linux-gnu/libcuda.so.1": "", "/lib/x86_64-linux-gnu/libcuda.so.570.86.15": "", "/usr/lib/libcuda.so": "a stub",
		}), "CUDA", StatusWarn, "no libcuda.so.1", "docker run --gpus all"},
		{"library without GPU", laptop().with(map[string]string{"/usr/lib64/libcuda.so.1": "ELF"}), "CUDA", StatusWarn, "/usr/lib64/libcuda.so.1; no /dev/nvidia*", "nvidia-smi"},
		{"RDMA", gpuServer(), "RDMA", StatusOK, "mlx5_0 (port 1 ACTIVE, 400 Gb/sec (4X NDR))", ""},
		{"RDMA ports down", serverWithCardsDown(10), "RDMA", StatusWarn, "and 2 more", "ibv_devinfo"},
		{"RDMA out of reach", gpuServer().with(map[string]string{"/dev/infiniband/uverbs0": ""}), "RDMA", StatusWarn, "no uverbs", "--device=/dev/infiniband"},
	})
}

func TestSoftwareChecks(t *testing.T) {
	const site = "/srv/venv/lib/python3.12/site-packages"
	requireChecks(t, []checkCase{
		{"UCX by ld.so.conf", gpuServer(), "UCX", StatusOK, "/opt/mellanox/ucx/lib/libucp.so.0.0.0, release 1.18.0", ""},
		{"UCX by LD_LIBRARY_PATH first", gpuServer().with(map[string]string{"/mine/libucp.so.0": "ELF"}).withEnv(map[string]string{"LD_LIBRARY_PATH": "relative:/mine"}), "UCX", StatusOK, "/mine/libucp.so.0, release unknown", ""},
		{"UCX as a wheel", laptop().with(map[string]string{
			"/home/ada/.local/lib/python3.11/site-packages/libucx/lib/libucp.so":             "ELF",
			"/home/ada/.local/lib/python3.11/site-packages/libucx_cu12-1.19.0.dist-info/WHL": "-",
		}), "UCX", StatusOK, "libucx 1.19.0 in /home/ada/.local/lib/python3.11/site-packages", ""},
		{"what only looks like UCX", laptop().with(map[string]string{
			"/usr/lib/libucp.so.backup": "-", "/usr/lib/libucp.so.0/readme": "-", "/usr/lib/libucp.a": "-",
		}), "UCX", StatusAbsent, "no libucp.so", "apt install libucx0"},
		{"NIXL", gpuServer(), "NIXL", StatusOK, "nixl 1.5.1 in " + site + "; nixl_cu12 1.5.1 in " + site, ""},
		{"NIXL's C library", laptop().with(map[string]string{"/usr/local/nixl/lib64/libnixl_capi.so": "ELF"}), "NIXL", StatusOK, "/usr/local/nixl/lib64/libnixl_capi.so", ""},
		{"Mooncake", gpuServer(), "Mooncake", StatusOK, "mooncake 0.3.13.post1 in " + site + "; /srv/venv/bin/mooncake_master", ""},
	})
}

func TestUCXMemoryHooks(t *testing.T) {
	onlyNIXL := laptop().with(map[string]string{"/usr/lib/python3/dist-packages/nixl/__init__.py": "#"})
	for _, tc := range []struct {
		name    string
		machine machine
		env     map[string]string
		status  Status
	}{
		{"neither UCX nor NIXL", laptop(), map[string]string{hookMode: "bistro"}, StatusAbsent},
		{"nothing set", gpuServer(), nil, StatusWarn},
		{"NIXL alone brings UCX", onlyNIXL, nil, StatusWarn},
		{"hooks on", gpuServer(), map[string]string{hookMode: "bistro"}, StatusWarn},
		{"hooks off", gpuServer(), map[string]string{hookMode: "none"}, StatusOK},
		{"hooks off, loudly", gpuServer(), map[string]string{hookMode: "NONE"}, StatusOK},
		{"hooks off for NIXL alone", onlyNIXL, map[string]string{hookMode: "none"}, StatusOK},
		{"bounded", gpuServer(), map[string]string{maxUnreleased: "1024"}, StatusOK},
		{"bounded by a size", gpuServer(), map[string]string{hookMode: "reloc", maxUnreleased: "512M"}, StatusOK},
		{"set to nothing", gpuServer(), map[string]string{maxUnreleased: ""}, StatusWarn},
		{"infinite", gpuServer(), map[string]string{maxUnreleased: "inf"}, StatusWarn},
		{"infinite, loudly", gpuServer(), map[string]string{maxUnreleased: "INF"}, StatusWarn},
		{"automatic is infinite", gpuServer(), map[string]string{maxUnreleased: "auto"}, StatusWarn},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := examine(t, tc.machine.withEnv(tc.env)).named(t, "UCX memory hooks")
			if c.Status != tc.status {
				t.Fatalf("is %s, want %s: %s", c.Status, tc.status, c.Found)
			}
			for _, export := range []string{"    export UCX_RCACHE_MAX_UNRELEASED=1024", "    export UCX_MEM_MMAP_HOOK_MODE=none"} {
				if advised := strings.Contains(c.Advice, "\n"+export+"\n"); advised != (tc.status == StatusWarn) {
					t.Errorf("advice with %q: %v\n%s", export, advised, c.Advice)
				}
			}
		})
	}
}

func TestLibrariesThroughLinks(t *testing.T) {
	m := laptop().with(map[string]string{"/usr/lib/x86_64-linux-gnu/libucp.so.0.0.0": "ELF"})
	m.links["/lib"] = "usr/lib"
	m.links["/usr/lib/x86_64-linux-gnu/libucp.so.0"] = "libucp.so.0.0.0"
	m.links["/usr/lib/x86_64-linux-gnu/libnixl.so"] = "gone.so"
	r := examine(t, m)
	if c := r.named(t, "UCX"); c.Found != "/lib/x86_64-linux-gnu/libucp.so.0.0.0, release unknown" {
		t.Errorf("UCX found %q", c.Found)
	}
	if c := r.named(t, "NIXL"); c.Status != StatusAbsent {
		t.Errorf("a link to nowhere is no library: %s", c.Found)
	}
}

// A command that only links to a Python elsewhere leads to the packages of that Python.
func TestPackagesThroughLinks(t *testing.T) {
	const prefix = "/home/ada/.local/share/uv/python/cpython-3.12"
	m := laptop().with(map[string]string{
		prefix + "/bin/python3.12":                                "ELF",
		prefix + "/lib/python3.12/site-packages/nixl/__init__.py": "#",
	}).withEnv(map[string]string{"PATH": "/home/ada/bin"})
	m.links["/home/ada/bin/python3"] = "python3.12"
	m.links["/home/ada/bin/python3.12"] = "../.local/share/uv/python/cpython-3.12/bin/python3.12"
	if c := examine(t, m).named(t, "NIXL"); c.Found != "nixl in "+prefix+"/lib/python3.12/site-packages" {
		t.Errorf("found %q", c.Found)
	}
}

func TestLoaderConfigThatIncludesItselfEnds(t *testing.T) {
	m := gpuServer().with(map[string]string{
		"/etc/ld.so.conf.d/again.conf": "include /etc/ld.so.conf\ninclude again.conf\ninclude [\n" +
			strings.Repeat("include /etc/ld.so.conf.d/*.conf /usr/bin/*\n", 10_000),
		"/etc/ld.so.conf": "/opt/mellanox/ucx/lib\ninclude ld.so.conf.d/*\n",
	})
	if c := examine(t, m).named(t, "UCX"); c.Status != StatusOK {
		t.Errorf("UCX is %s: %s", c.Status, c.Found)
	}
}

func TestLimitsThatCannotBeHad(t *testing.T) {
	h := laptop().host()
	refuse := func() (ResourceLimit, error) { return ResourceLimit{}, errors.New("getrlimit: refused") }
	h.OpenFiles, h.LockedMemoryBytes = refuse, refuse
	r := Examine(t.Context(), h)
	requireWellFormed(t, r)
	for _, name := range []string{"open files", "locked memory"} {
		if c := r.named(t, name); c.Status != StatusWarn || c.Found != "getrlimit: refused" {
			t.Errorf("%s is %s: %s", name, c.Status, c.Found)
		}
	}
}

func TestDirectoriesAreReadInPart(t *testing.T) {
	files := map[string]string{}
	for i := range maxDirEntries + 1 {
		files[fmt.Sprintf("/crowd/f%05d", i)] = "-"
	}
	p := &boundedHost{ctx: t.Context(), host: machine{files: files}.host()}
	entries, err := p.list("/crowd")
	if err != nil || len(entries) != maxDirEntries {
		t.Errorf("%d entries, error %v", len(entries), err)
	}
}
