package doctor

import (
	"cmp"
	"fmt"
	"path"
	"strings"
)

const (
	hookMode      = "UCX_MEM_MMAP_HOOK_MODE"
	maxUnreleased = "UCX_RCACHE_MAX_UNRELEASED"
)

func ucx(p *boundedHost) finding {
	installed := p.installed()
	lib, hasLibrary := installed.libraries["libucp.so"]
	pkg, hasPackage := installed.packages["libucx"]
	switch {
	case hasLibrary:
		return ok(fmt.Sprintf("%s, release %s", lib.path(), p.ucxRelease(lib)))
	case hasPackage:
		return ok(pkg.String())
	default:
		return absent("no libucp.so", "Not needed today. To have it on Debian or Ubuntu:\n    apt install libucx0")
	}
}

// ucxRelease asks pkg-config's file beside the library: libucp's own name ends in .so.0.0.0 in every release.
func (p *boundedHost) ucxRelease(lib library) string {
	text, _ := p.read(path.Join(lib.dir, "pkgconfig", "ucx.pc"))
	return cmp.Or(lineAfter(text, "Version:"), "unknown")
}

// The growth was found in vLLM with NIXL (vLLM issue 24264). UCX 1.21 merges overlapping entries (UCX pull request
// 11248), NIXL sets a bound (NIXL pull request 1210) and so does vLLM, which first switched the hooks off (vLLM pull
// request 32181) until that crashed on ROCm (32570). The bound counts bytes, as UCX's rcache.c declares it.
const hooksAdvice = "UCX patches mmap and munmap of the whole process, to learn when memory that it has registered with a card " +
	"goes away. What it cannot deregister on the spot waits in a queue that has no bound by default and takes its own " +
	"memory from mmap; a busy engine can grow by it until the host has no memory left. UCX 1.21, and recent NIXL and " +
	"vLLM, hold it down by themselves. Otherwise start the engine with one of these, of which either is enough:\n" +
	"    export " + maxUnreleased + "=1024\n" +
	"    export " + hookMode + "=none\n" +
	"The first keeps the hooks and cleans up as soon as that many bytes wait. The second removes the hooks: right where " +
	"memory is registered once and kept, as a KV pool is, but it has crashed NIXL on ROCm."

// ucxMemoryHooks sees the environment of this process; what counts is the environment that the engine starts with.
func ucxMemoryHooks(p *boundedHost) finding {
	installed := p.installed()
	carriers := installed.describe([]string{"libucp.so", "libnixl.so", "libnixl_capi.so"},
		[]string{"libucx", "nixl", "nixl_cu12", "nixl_cu13"}, nil)
	if len(carriers) == 0 {
		return absent("does not apply: neither UCX nor NIXL is here", "")
	}
	found := fmt.Sprintf("in this environment %s and %s", p.setting(hookMode), p.setting(maxUnreleased))
	if strings.EqualFold(p.env(hookMode), "none") || bounded(p.env(maxUnreleased)) {
		return ok(found)
	}
	return warn(found, hooksAdvice)
}

// bounded knows the two words that UCX takes for "no bound", whatever their case.
func bounded(size string) bool {
	return size != "" && !strings.EqualFold(size, "inf") && !strings.EqualFold(size, "auto")
}

func (p *boundedHost) setting(name string) string {
	if value := p.env(name); value != "" {
		return name + "=" + value
	}
	return name + " unset"
}
