package serving

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// vllmPeer is a connector that comes with vLLM.
type vllmPeer struct {
	name, title string
	prepare     func(o *surveyor) (vllmSetting, error)
}

// vllmSetting is how its servers are started.
type vllmSetting struct {
	transfer map[string]any
	// environment of the i-th server of a pair.
	environment func(i int) []string
}

var vllmPeers = []vllmPeer{
	{name: "example", title: "ExampleConnector", prepare: prepareExample},
	{name: "nixl", title: "NixlConnector", prepare: prepareNIXL},
}

// VLLMPeerNames lists the connectors that can be measured beside Meridian's.
func VLLMPeerNames() (names []string) {
	for _, kind := range vllmPeers {
		names = append(names, kind.name)
	}
	return names
}

// prepareExample has files in memory, one for each layer of each prompt.
func prepareExample(o *surveyor) (vllmSetting, error) {
	shared := filepath.Join(o.scratch, "shared")
	return vllmSetting{
		transfer: map[string]any{
			"kv_connector": "ExampleConnector", "kv_role": "kv_both", "kv_connector_extra_config": map[string]any{"shared_storage_path": shared},
		},
		environment: func(int) []string { return nil },
	}, os.Mkdir(shared, 0o700)
}

// nixlSideChannel is where the first server tells others of its memory.
const nixlSideChannel = 5600

// prepareNIXL lends vLLM's interpreter the NIXL of `make peers`, and nothing
// else from there. Its loader looks for the build that fits the CUDA runtime of
// vLLM's environment; on a CPU none is used, so the one that is there does.
func prepareNIXL(o *surveyor) (vllmSetting, error) {
	packages, err := filepath.Glob(filepath.Join(o.options.PeersDir, "nixl", "lib", "python*", "site-packages"))
	if err != nil || len(packages) != 1 {
		return vllmSetting{}, fmt.Errorf("NIXL is not in %s; to have it: make peers", filepath.Join(o.options.PeersDir, "nixl"))
	}
	lent := filepath.Join(o.scratch, "nixl")
	if err := lendNIXL(packages[0], lent); err != nil {
		return vllmSetting{}, err
	}
	path := lent
	if before := os.Getenv("PYTHONPATH"); before != "" {
		path += string(os.PathListSeparator) + before
	}
	return vllmSetting{
		transfer: map[string]any{"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_buffer_device": "cpu"},
		environment: func(i int) []string {
			return []string{
				"PYTHONPATH=" + path, "VLLM_NIXL_SIDE_CHANNEL_HOST=127.0.0.1", "VLLM_NIXL_SIDE_CHANNEL_PORT=" + strconv.Itoa(nixlSideChannel+i),
				"UCX_TLS=all", "UCX_LOG_LEVEL=error",
			}
		},
	}, nil
}

func lendNIXL(packages, lent string) error {
	packages, err := filepath.Abs(packages)
	if err != nil {
		return err
	}
	if err := os.Mkdir(lent, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(packages)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), "nixl") {
			continue
		}
		if err := os.Symlink(filepath.Join(packages, entry.Name()), filepath.Join(lent, entry.Name())); err != nil {
			return err
		}
	}
	const there, wanted = "nixl_cu12", "nixl_cu13"
	if _, err := os.Stat(filepath.Join(lent, wanted)); err == nil {
		return nil
	}
	return os.Symlink(there, filepath.Join(lent, wanted))
}

// firstLine of an error; the rest is a server's log.
func firstLine(err error) string {
	line, rest, _ := strings.Cut(err.Error(), "\n")
	lines := strings.Split(strings.TrimSpace(rest), "\n")
	if said := strings.TrimSpace(lines[len(lines)-1]); said != "" {
		line += " " + said
	}
	return line
}
