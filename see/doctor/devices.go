package doctor

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

const (
	nvidiaDriver    = "/proc/driver/nvidia/version"
	verbsDir        = "/dev/infiniband"
	maxDevicesShown = 8
)

var (
	gpuDevice     = regexp.MustCompile(`^(nvidia[0-9]+|dxg)$`) // dxg: the GPU as WSL shows it
	driverRelease = regexp.MustCompile(`\b[0-9]+(\.[0-9]+)+\b`)
)

func cuda(p *boundedHost) finding {
	// A libcuda.so without a version is the toolkit's stub for linking, not a driver.
	lib, hasLibrary := p.installed().libraries["libcuda.so"]
	hasLibrary = hasLibrary && lib.version != ""
	gpus := p.gpuCount()
	driver := p.driverVersion()

	var found []string
	if gpus > 0 {
		found = append(found, fmt.Sprintf("GPU devices: %d", gpus))
	}
	if driver != "" {
		found = append(found, "kernel driver "+driver)
	}
	if hasLibrary {
		found = append(found, lib.path())
	}
	switch seen := strings.Join(found, "; "); {
	case gpus > 0 && hasLibrary:
		return ok(seen)
	case len(found) == 0:
		return absent("no libcuda.so.1, no /dev/nvidia*, no kernel driver",
			"Not needed today. On a machine with an NVIDIA GPU, install its driver; this must then list the GPU:\n    nvidia-smi")
	case hasLibrary:
		return warn(seen+"; no /dev/nvidia*", "The library is here, the GPU is not. Load the driver, or hand the GPU to the container:\n"+
			"    nvidia-smi\n    docker run --gpus all …")
	default:
		return warn(seen+"; no libcuda.so.1", "The driver is here, its library is not. Hand it to the container, or say where it is:\n"+
			"    docker run --gpus all …\n    export LD_LIBRARY_PATH=/directory/of/libcuda.so.1")
	}
}

func (p *boundedHost) gpuCount() int {
	devices, _ := p.list("/dev")
	gpus := 0
	for _, device := range devices {
		if gpuDevice.MatchString(device.Name()) {
			gpus++
		}
	}
	return gpus
}

// driverVersion is empty without a driver. The file says: NVRM version: NVIDIA UNIX … Kernel Module  550.54.15  …
func (p *boundedHost) driverVersion() string {
	text, err := p.read(nvidiaDriver)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(text, "\n")
	if release := driverRelease.FindString(line); release != "" {
		return release
	}
	return "of unknown release (" + malformed(nvidiaDriver, line).Error() + ")"
}

func rdma(p *boundedHost) finding {
	devices, err := p.list(infinibandDir)
	if err != nil || len(devices) == 0 {
		return absent("no device in "+infinibandDir,
			"Not needed today. If the machine has an RDMA card, load its driver; this must then list it:\n    ls "+infinibandDir)
	}
	var shown []string
	active := 0
	for _, device := range devices {
		ports, activePorts := p.ports(path.Join(infinibandDir, device.Name(), "ports"))
		active += activePorts
		if len(shown) < maxDevicesShown {
			shown = append(shown, device.Name()+" ("+ports+")")
		}
	}
	if more := len(devices) - len(shown); more > 0 {
		shown = append(shown, fmt.Sprintf("and %d more", more))
	}
	found := strings.Join(shown, ", ")
	switch {
	case !p.hasVerbs():
		return warn(found+"; no uverbs in "+verbsDir, "The card is visible, but no process here can open it. Load the module, or hand it to the container:\n"+
			"    modprobe ib_uverbs\n    docker run --device=/dev/infiniband --ulimit memlock=-1 …")
	case active == 0:
		return warn(found, "No port is active. Check cable, switch and subnet manager:\n    ibv_devinfo\n    rdma link")
	default:
		return ok(found)
	}
}

// ports describes the ports of a card and counts the active ones.
func (p *boundedHost) ports(dir string) (described string, active int) {
	entries, err := p.list(dir)
	if err != nil || len(entries) == 0 {
		return "ports unknown", 0
	}
	var each []string
	for _, port := range entries[:min(len(entries), maxDevicesShown)] {
		state, err := p.word(path.Join(dir, port.Name(), "state")) // such as "4: ACTIVE"
		_, name, known := strings.Cut(state, ": ")
		if err != nil || !known {
			each = append(each, "port "+port.Name()+" in unknown state")
			continue
		}
		if name == "ACTIVE" {
			active++
		}
		description := "port " + port.Name() + " " + name
		if rate, err := p.word(path.Join(dir, port.Name(), "rate")); err == nil {
			description += ", " + rate
		}
		each = append(each, description)
	}
	return strings.Join(each, "; "), active
}

func (p *boundedHost) hasVerbs() bool {
	devices, _ := p.list(verbsDir)
	return slices.ContainsFunc(devices, func(device fs.DirEntry) bool { return strings.HasPrefix(device.Name(), "uverbs") })
}
