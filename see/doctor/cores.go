package doctor

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

const (
	presentCPUs = "/sys/devices/system/cpu/present"
	onlineNodes = "/sys/devices/system/node/online"

	fewestCores   = 2
	maxListed     = 1 << 16 // ids in a kernel list; kernels stop at 8192 CPUs and 1024 nodes
	maxNodesShown = 8
)

func cores(p *boundedHost) finding {
	usable := p.host.UsableCPUs()
	found := fmt.Sprintf("%d usable by this process", usable)
	present, err := p.kernelList(presentCPUs)
	if err != nil {
		f := unreadable(presentCPUs, err)
		f.found = found + "; how many are present is unknown: " + f.found
		return f
	}
	found += fmt.Sprintf(" of %d present", len(present))

	quota, err := p.cpuQuota()
	if err != nil {
		return warn(found+"; "+err.Error(), "The cgroup's CPU quota could not be read:\n    cat /sys/fs/cgroup/cpu.max")
	}
	if !math.IsInf(quota, 1) {
		found += fmt.Sprintf("; cgroup quota of %.4g cores", quota)
	}
	if p.cgroupV1() {
		found += "; limits of cgroup v1 are not read"
	}
	if min(quota, float64(usable)) < fewestCores {
		return warn(found, fmt.Sprintf("An agent beside an engine wants %d cores or more. Widen what this process may use:\n"+
			"    taskset -cp 0-%d $$\n    docker update --cpus %d CONTAINER", fewestCores, fewestCores-1, fewestCores))
	}
	return ok(found)
}

func numaNodes(p *boundedHost) finding {
	nodes, err := p.kernelList(onlineNodes)
	if err != nil {
		return unreadable(onlineNodes, err)
	}
	if len(nodes) == 1 {
		return ok("1 node")
	}
	var each []string
	for _, node := range nodes[:min(len(nodes), maxNodesShown)] {
		cpus, err := p.word(fmt.Sprintf("/sys/devices/system/node/node%d/cpulist", node))
		switch {
		case err != nil:
			each = append(each, fmt.Sprintf("node %d: CPUs unknown", node))
		case cpus == "":
			each = append(each, fmt.Sprintf("node %d: no CPUs", node))
		default:
			each = append(each, fmt.Sprintf("node %d: CPUs %s", node, cpus))
		}
	}
	if more := len(nodes) - len(each); more > 0 {
		each = append(each, fmt.Sprintf("and %d more", more))
	}
	return ok(fmt.Sprintf("%d nodes (%s)", len(nodes), strings.Join(each, "; ")))
}

// kernelList reads a list such as "0-3,8,10-11"; it is never empty when err is nil.
func (p *boundedHost) kernelList(name string) ([]int, error) {
	text, err := p.word(name)
	if err != nil {
		return nil, err
	}
	var ids []int
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		low, errLow := strconv.Atoi(first)
		high, errHigh := strconv.Atoi(last)
		if errLow != nil || errHigh != nil || low < 0 || high < low || high-low >= maxListed-len(ids) {
			return nil, malformed(name, text)
		}
		for id := low; id <= high; id++ {
			ids = append(ids, id)
		}
	}
	return ids, nil
}
