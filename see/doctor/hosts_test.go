package doctor

import (
	"context"
	"io/fs"
	"maps"
	"strings"
	"testing/fstest"
)

// machine describes a Host in the way a test can vary: files by absolute path, links, environment and limits.
type machine struct {
	files map[string]string
	links map[string]string
	env   map[string]string

	usableCPUs        int
	openFiles         ResourceLimit
	lockedMemoryBytes ResourceLimit
	tiers             []Tier
	unasked           error // an agent that does not answer
}

func (m machine) mapFS() fstest.MapFS {
	files := make(fstest.MapFS)
	for name, text := range m.files {
		files[rooted(name)] = &fstest.MapFile{Data: []byte(text), Mode: 0o444}
	}
	for name, target := range m.links {
		files[rooted(name)] = &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink | 0o777}
	}
	return files
}

func (m machine) host() Host { return m.hostOn(m.mapFS()) }

func (m machine) hostOn(files fs.FS) Host {
	return Host{
		Files:             files,
		LookupEnv:         func(name string) (string, bool) { value, set := m.env[name]; return value, set },
		UsableCPUs:        func() int { return m.usableCPUs },
		OpenFiles:         func() (ResourceLimit, error) { return m.openFiles, nil },
		LockedMemoryBytes: func() (ResourceLimit, error) { return m.lockedMemoryBytes, nil },
		Tiers:             func(context.Context) ([]Tier, error) { return m.tiers, m.unasked },
	}
}

// with returns a copy in which some files are different; an empty text removes the file.
func (m machine) with(files map[string]string) machine {
	m.files = maps.Clone(m.files)
	for name, text := range files {
		if m.files[name] = text; text == "" {
			delete(m.files, name)
		}
	}
	return m
}

func (m machine) withEnv(env map[string]string) machine {
	m.env = maps.Clone(m.env)
	maps.Copy(m.env, env)
	return m
}

func laptop() machine {
	return machine{
		usableCPUs:        8,
		openFiles:         ResourceLimit{Soft: 524288, Hard: 524288},
		lockedMemoryBytes: ResourceLimit{Soft: 8 << 20, Hard: 8 << 20},
		env:               map[string]string{"PATH": "/usr/local/bin:/usr/bin:relative", "HOME": "/home/ada"},
		links:             map[string]string{"/proc/self/ns/pid": initialPIDSpace},
		files: map[string]string{
			"/proc/meminfo":                      "MemTotal:       16384000 kB\nMemAvailable:   12288000 kB\nHugePages_Total:       0\nHugePages_Free:        0\nHugepagesize:       2048 kB\n",
			"/proc/self/cgroup":                  "0::/user.slice/session-1.scope\n",
			"/proc/self/mountinfo":               "25 24 0:23 / /dev/shm rw,nosuid shared:3 - tmpfs tmpfs rw,inode64\n",
			"/proc/self/status":                  "Name:\tmeridian\nNSpid:\t4242\nCapEff:\t0000000000000000\nSeccomp:\t0\n",
			"/proc/1/comm":                       "systemd\n",
			"/proc/sys/kernel/osrelease":         "6.8.0-45-generic\n",
			"/proc/sys/kernel/yama/ptrace_scope": "1\n",
			"/sys/fs/cgroup/cgroup.controllers":  "cpu memory\n",
			"/sys/devices/system/cpu/present":    "0-7\n",
			"/sys/devices/system/node/online":    "0\n",
			thpDir + "/enabled":                  "always [madvise] never\n",
			thpDir + "/shmem_enabled":            "always within_size advise [never] deny force\n",
			"/etc/ld.so.conf":                    "include /etc/ld.so.conf.d/*.conf\n",
			"/usr/bin/python3":                   "ELF",
			"/usr/lib/python3/dist-packages/six": "import sys",
		},
	}
}

// gpuServer has two GPUs, an RDMA card, UCX under ld.so.conf, NIXL and Mooncake in a virtual environment, and UCX's
// hooks as they are by default.
func gpuServer() machine {
	const ib = infinibandDir + "/mlx5_0/ports/1"
	const site = "/srv/venv/lib/python3.12/site-packages"
	m := laptop().with(map[string]string{
		"/proc/meminfo":                              "MemTotal:     2113929216 kB\nMemAvailable: 1992294400 kB\nHugePages_Total:    4096\nHugePages_Free:     4000\nHugepagesize:       2048 kB\n",
		"/proc/self/mountinfo":                       "25 24 0:23 / /dev/shm rw shared:3 - tmpfs tmpfs rw,size=1056964608k,inode64\n",
		"/sys/devices/system/cpu/present":            "0-127\n",
		"/sys/devices/system/node/online":            "0-1\n",
		"/sys/devices/system/node/node0/cpulist":     "0-63\n",
		"/sys/devices/system/node/node1/cpulist":     "64-127\n",
		"/dev/nvidia0":                               "-",
		"/dev/nvidia1":                               "-",
		"/dev/nvidiactl":                             "-",
		"/dev/infiniband/uverbs0":                    "-",
		nvidiaDriver:                                 "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\nGCC version:  gcc 12\n",
		"/lib/x86_64-linux-gnu/libcuda.so.1":         "ELF",
		"/lib/x86_64-linux-gnu/libcuda.so.570.86.15": "ELF",
		ib + "/state":                                "4: ACTIVE\n",
		ib + "/rate":                                 "400 Gb/sec (4X NDR)\n",
		"/etc/ld.so.conf.d/ucx.conf":                 "# UCX\n/opt/mellanox/ucx/lib  # ours\n",
		"/opt/mellanox/ucx/lib/libucp.so":            "ELF",
		"/opt/mellanox/ucx/lib/libucp.so.0":          "ELF",
		"/opt/mellanox/ucx/lib/libucp.so.0.0.0":      "ELF",
		"/opt/mellanox/ucx/lib/pkgconfig/ucx.pc":     "Name: ucx\nVersion: 1.18.0\n",
		site + "/nixl/__init__.py":                   "",
		site + "/nixl_cu12/__init__.py":              "",
		site + "/nixl_cu12-1.5.1.dist-info/RECORD":   "-",
		site + "/mooncake/mooncake_master":           "ELF",
		site + "/mooncake_transfer_engine_cuda13-0.3.13.post1.dist-info/RECORD": "-",
		"/srv/venv/bin/mooncake_master":                                         "#!",
	})
	// with removes empty files, and these are empty in real wheels too.
	m.files[site+"/nixl/__init__.py"] = ""
	m.files[site+"/nixl_cu12/__init__.py"] = ""
	m.usableCPUs = 128
	m.tiers = []Tier{{Agent: "a", Name: "disk"}, {Agent: "a", Name: "s3"}}
	return m.withEnv(map[string]string{"VIRTUAL_ENV": "/srv/venv", "PATH": "/srv/venv/bin:/usr/bin"})
}

// lockedContainer has a cgroup with limits, a PID namespace of its own, Docker's small /dev/shm and no privileges.
func lockedContainer() machine {
	m := laptop().with(map[string]string{
		"/proc/self/cgroup":                  "0::/\n",
		"/proc/self/mountinfo":               "25 24 0:23 / /dev/shm rw - tmpfs shm rw,size=65536k\n",
		"/proc/self/status":                  "NSpid:\t1\nCapEff:\t00000000a80425fb\nSeccomp:\t2\n",
		"/proc/1/comm":                       "meridian\n",
		"/proc/sys/kernel/osrelease":         "5.15.0-91-generic\n",
		"/proc/sys/kernel/yama/ptrace_scope": "2\n",
		"/sys/fs/cgroup/cpu.max":             "150000 100000\n",
		"/sys/fs/cgroup/memory.max":          "536870912\n",
		thpDir + "/enabled":                  "always madvise [never]\n",
	})
	m.links = map[string]string{"/proc/self/ns/pid": "pid:[4026532448]"}
	m.openFiles = ResourceLimit{Soft: 1024, Hard: 1024}
	return m
}

// garbled replaces every file by the same text.
func (m machine) garbled(text string) machine {
	m.files = maps.Clone(m.files)
	for name := range m.files {
		m.files[name] = text
	}
	return m
}

// flattened puts a directory where every file was.
func (m machine) flattened() machine {
	files := make(map[string]string)
	for name := range m.files {
		if !strings.HasPrefix(name, "/usr/") {
			files[name+"/inside"] = "-"
		}
	}
	m.files = files
	return m
}
