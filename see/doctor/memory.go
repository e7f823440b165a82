package doctor

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

const (
	memInfoFile   = "/proc/meminfo"
	mountInfoFile = "/proc/self/mountinfo"
	thpDir        = "/sys/kernel/mm/transparent_hugepage"

	leastMemoryBytes = 1 << 30
	leastShmBytes    = 1 << 30
)

func memory(p *boundedHost) finding {
	info, err := p.memInfo()
	if err != nil {
		return unreadable(memInfoFile, err)
	}
	found := fmt.Sprintf("%s total, %s available", humanBytes(info["MemTotal"]), humanBytes(info["MemAvailable"]))

	limit, err := p.memoryLimit()
	if err != nil {
		return warn(found+"; "+err.Error(), "The cgroup's memory limit could not be read:\n    cat /sys/fs/cgroup/memory.max")
	}
	if !math.IsInf(limit, 1) {
		found += fmt.Sprintf("; cgroup limit of %s", humanBytes(limit))
	}
	if p.cgroupV1() {
		found += "; limits of cgroup v1 are not read"
	}
	if min(limit, info["MemAvailable"]) < leastMemoryBytes {
		return warn(found, "Too little for a KV cache in DRAM. Free some, or raise the container's limit:\n"+
			"    free -h\n    docker update --memory 8g --memory-swap 8g CONTAINER")
	}
	return ok(found)
}

func hugePages(p *boundedHost) finding {
	info, err := p.memInfo()
	if err != nil {
		return unreadable(memInfoFile, err)
	}
	anonymous, err := p.chosen(thpDir + "/enabled")
	if err != nil {
		anonymous = "unknown"
	}
	shared, err := p.chosen(thpDir + "/shmem_enabled")
	if err != nil {
		shared = "unknown"
	}
	transparent := fmt.Sprintf("transparent huge pages: %s, for memfds: %s", anonymous, shared)
	total, free, size := info["HugePages_Total"], info["HugePages_Free"], humanBytes(info["Hugepagesize"])

	const reserve = "Reserve some as root (each of the default size):\n    sysctl -w vm.nr_hugepages=1024"
	switch {
	case total > 0 && free == 0:
		return warn(fmt.Sprintf("%.0f of %s reserved, all in use; %s", total, size, transparent), reserve)
	case total > 0:
		return ok(fmt.Sprintf("%.0f of %s reserved, %.0f free; %s", total, size, free, transparent))
	case anonymous == "always" || anonymous == "madvise":
		return ok("none reserved; " + transparent)
	default:
		return absent("none reserved; "+transparent, reserve)
	}
}

// sharedMemory tells the capacity of /dev/shm from its mount options; the kernel leaves size out when it is the
// default, half of the memory.
func sharedMemory(p *boundedHost) finding {
	text, err := p.read(mountInfoFile)
	if err != nil {
		return unreadable(mountInfoFile, err)
	}
	options, mounted := tmpfsOptions(text, "/dev/shm")
	if !mounted {
		return absent("no tmpfs is mounted there", "Mount one as root:\n    mount -t tmpfs -o size=8g tmpfs /dev/shm")
	}
	var size float64
	found := "tmpfs"
	if option, hasSize := sizeOption(options); hasSize {
		parsed, valid := parseSize(option)
		if !valid {
			return unreadable(mountInfoFile, malformed(mountInfoFile, "size="+option))
		}
		size, found = parsed, found+" of "+humanBytes(parsed)
	} else {
		info, err := p.memInfo()
		if err != nil {
			return unreadable(memInfoFile, err)
		}
		size = info["MemTotal"] / 2
		found += fmt.Sprintf(" of %s, the default: half of the memory", humanBytes(size))
	}
	if size < leastShmBytes {
		return warn(found, "Engines with several processes fail in confusing ways when it is full. Make it larger:\n"+
			"    mount -o remount,size=8g /dev/shm\n    docker run --shm-size=8g …")
	}
	return ok(found)
}

// memInfo holds /proc/meminfo in bytes, or in pages where the kernel counts pages.
func (p *boundedHost) memInfo() (map[string]float64, error) {
	text, err := p.read(memInfoFile)
	if err != nil {
		return nil, err
	}
	info := make(map[string]float64)
	for line := range strings.Lines(text) {
		name, rest, _ := strings.Cut(line, ":")
		value, isKiB := strings.CutSuffix(strings.TrimSpace(rest), " kB")
		n, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			continue
		}
		info[name] = float64(n)
		if isKiB {
			info[name] *= 1 << 10
		}
	}
	for _, needed := range []string{"MemTotal", "MemAvailable"} {
		if _, there := info[needed]; !there {
			return nil, fmt.Errorf("%s: has no usable %s", memInfoFile, needed)
		}
	}
	return info, nil
}

// chosen reads a sysfs choice such as "always [madvise] never".
func (p *boundedHost) chosen(name string) (string, error) {
	text, err := p.word(name)
	if err != nil {
		return "", err
	}
	_, rest, opened := strings.Cut(text, "[")
	choice, _, closed := strings.Cut(rest, "]")
	if !opened || !closed || choice == "" {
		return "", errors.New(name + ": no choice marked")
	}
	return choice, nil
}

// tmpfsOptions gives the super block's options of the mount that is visible at a place: the last one made there.
func tmpfsOptions(mountInfo, place string) (options string, mounted bool) {
	for line := range strings.Lines(mountInfo) {
		mount, super, _ := strings.Cut(line, " - ")
		mountFields, superFields := strings.Fields(mount), strings.Fields(super)
		if len(mountFields) < 5 || mountFields[4] != place {
			continue
		}
		mounted = len(superFields) >= 3 && superFields[0] == "tmpfs"
		if mounted {
			options = superFields[2]
		}
	}
	return options, mounted
}

func sizeOption(options string) (string, bool) {
	for option := range strings.SplitSeq(options, ",") {
		if size, isSize := strings.CutPrefix(option, "size="); isSize {
			return size, true
		}
	}
	return "", false
}

func parseSize(text string) (float64, bool) {
	units := map[byte]float64{'k': 1 << 10, 'm': 1 << 20, 'g': 1 << 30}
	unit := 1.0
	if last := len(text) - 1; last >= 0 && units[text[last]] != 0 {
		unit, text = units[text[last]], text[:last]
	}
	n, err := strconv.ParseUint(text, 10, 64)
	return float64(n) * unit, err == nil
}

func humanBytes(n float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	unit := 0
	for n >= 1<<10 && unit < len(units)-1 {
		n /= 1 << 10
		unit++
	}
	return fmt.Sprintf("%.4g %s", n, units[unit])
}
