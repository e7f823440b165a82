package doctor

import (
	"errors"
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"
)

const (
	cgroupRoot     = "/sys/fs/cgroup"
	ownCgroup      = "/proc/self/cgroup"
	maxCgroupDepth = 64
)

// cpuQuota is the tightest cgroup v2 quota in cores; infinite when there is none.
func (p *boundedHost) cpuQuota() (float64, error) {
	return p.tightest("cpu.max", func(text string) (float64, bool) {
		fields := strings.Fields(text)
		if len(fields) != 2 {
			return 0, false
		}
		quota, quotaOK := parseLimit(fields[0])
		period, periodOK := parseLimit(fields[1])
		return quota / period, quotaOK && periodOK && period > 0 && !math.IsInf(period, 1)
	})
}

// memoryLimit is the tightest cgroup v2 limit in bytes; infinite when there is none.
func (p *boundedHost) memoryLimit() (float64, error) {
	return p.tightest("memory.max", parseLimit)
}

// tightest reads one limit file in this process's cgroup and in all its ancestors, because each of them binds.
// A file that is not there is no limit.
func (p *boundedHost) tightest(file string, parse func(string) (float64, bool)) (float64, error) {
	tightest := math.Inf(1)
	dir := path.Join(cgroupRoot, p.cgroupPath())
	for range maxCgroupDepth {
		name := path.Join(dir, file)
		text, err := p.word(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
		if err == nil {
			limit, parsed := parse(text)
			if !parsed {
				return 0, malformed(name, text)
			}
			tightest = min(tightest, limit)
		}
		if dir == cgroupRoot {
			break
		}
		dir = path.Dir(dir)
	}
	return tightest, nil
}

// cgroupPath is this process's place in the v2 hierarchy, "/" when it cannot be told; it never leads above the root.
func (p *boundedHost) cgroupPath() string {
	text, _ := p.read(ownCgroup)
	return path.Clean("/" + lineAfter(text, "0::"))
}

func (p *boundedHost) cgroupV1() bool {
	return p.isDir(path.Join(cgroupRoot, "memory")) && !p.isRegular(path.Join(cgroupRoot, "cgroup.controllers"))
}

func parseLimit(text string) (float64, bool) {
	if text == "max" {
		return math.Inf(1), true
	}
	n, err := strconv.ParseUint(text, 10, 64)
	return float64(n), err == nil
}
