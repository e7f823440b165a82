package doctor

import (
	"fmt"
	"strconv"
	"strings"
)

const osRelease = "/proc/sys/kernel/osrelease"

type kernelVersion struct{ major, minor int }

var (
	withSealedMemfd = kernelVersion{3, 17} // memfd_create(2), fcntl(2) F_ADD_SEALS
	withPidfd       = kernelVersion{5, 3}  // pidfd_open(2)
	withPeerPidfd   = kernelVersion{6, 5}  // getsockopt SO_PEERPIDFD
)

func (v kernelVersion) String() string { return fmt.Sprintf("%d.%d", v.major, v.minor) }

func (v kernelVersion) atLeast(other kernelVersion) bool {
	return v.major > other.major || v.major == other.major && v.minor >= other.minor
}

func (p *boundedHost) kernel() (kernelVersion, error) {
	text, err := p.word(osRelease)
	if err != nil {
		return kernelVersion{}, err
	}
	majorText, rest, _ := strings.Cut(text, ".")
	minorText := rest
	if end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		minorText = rest[:end]
	}
	major, errMajor := strconv.ParseUint(majorText, 10, 16)
	minor, errMinor := strconv.ParseUint(minorText, 10, 16)
	if errMajor != nil || errMinor != nil {
		return kernelVersion{}, malformed(osRelease, text)
	}
	return kernelVersion{int(major), int(minor)}, nil
}

func memfd(p *boundedHost) finding {
	kernel, err := p.kernel()
	switch {
	case err != nil:
		return unreadable(osRelease, err)
	case !kernel.atLeast(withSealedMemfd):
		return absent(fmt.Sprintf("kernel %s; memfd_create and seals came with %s", kernel, withSealedMemfd),
			"Upgrade the kernel, then look again:\n    uname -r")
	default:
		return ok(fmt.Sprintf("kernel %s has memfd_create and seals", kernel))
	}
}

func pidfd(p *boundedHost) finding {
	kernel, err := p.kernel()
	switch {
	case err != nil:
		return unreadable(osRelease, err)
	case kernel.atLeast(withPeerPidfd):
		return ok(fmt.Sprintf("kernel %s has pidfd_open and SO_PEERPIDFD", kernel))
	case kernel.atLeast(withPidfd):
		return warn(fmt.Sprintf("kernel %s has pidfd_open, but SO_PEERPIDFD came with %s", kernel, withPeerPidfd),
			fmt.Sprintf("The agent then goes by the number of the process, which another may have got meanwhile. Kernel %s or later is sure:\n    uname -r", withPeerPidfd))
	default:
		return absent(fmt.Sprintf("kernel %s; pidfd_open came with %s, SO_PEERPIDFD with %s", kernel, withPidfd, withPeerPidfd),
			fmt.Sprintf("No engine gets in at an agent's door without it. Upgrade the kernel, best to %s or later:\n    uname -r", withPeerPidfd))
	}
}
