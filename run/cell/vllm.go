package cell

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// VLLM runs servers of vLLM in place of reference engines.
type VLLM struct {
	// Program is the command `vllm`, and Python the interpreter that has it.
	Python, Program string
	Version         string
	// Args are added to those of every server.
	Args []string
	// Governed are arguments of the cell's workers alone, before Args, and Settings is added to
	// their environment: a server that they are compared with serves as vLLM does.
	Governed, Settings []string
	// First is where free ports are looked for; empty means firstServer.
	First string
	// Patience is how long a server may take until it is ready; 0 means
	// defaultPatience.
	Patience time.Duration
}

// defaultPatience is enough to load a model from a slow disk; meanwhile the end
// of the log is told.
const defaultPatience = 5 * time.Minute

// NoVLLMError means that there is no vLLM that a cell could run.
type NoVLLMError struct{ Why, Fix string }

func (e *NoVLLMError) Error() string { return e.Why }

// Hint says what to type.
func (e *NoVLLMError) Hint() string { return e.Fix }

// peerVLLM is where `make vllm` of a checkout puts it.
const peerVLLM = ".peers/vllm"

// FindVLLM finds the vLLM of a virtual environment. Where none is named, it is
// the active one, else that of `make vllm`, else the one that PATH has. It must
// have the package meridian, with the connector.
func FindVLLM(ctx context.Context, environment string) (*VLLM, error) {
	program, err := vllmProgram(environment)
	if err != nil {
		return nil, err
	}
	v := &VLLM{Program: program, Python: interpreterOf(program)}
	return v, v.check(ctx)
}

func vllmProgram(environment string) (string, error) {
	const fix = "`make vllm` in a checkout of Meridian makes a virtual environment that has it, for the CPU; --venv DIR names another one"
	if environment != "" {
		program, err := vllmIn(environment)
		if err != nil {
			return "", &NoVLLMError{fmt.Sprintf("there is no vLLM in %s: %v", environment, err), fix}
		}
		return program, nil
	}
	for _, environment := range []string{os.Getenv("VIRTUAL_ENV"), peerVLLM} {
		if environment == "" {
			continue
		}
		if program, err := vllmIn(environment); err == nil {
			return program, nil
		}
	}
	program, err := exec.LookPath("vllm")
	if err == nil {
		program, err = filepath.Abs(program)
	}
	if err != nil {
		return "", &NoVLLMError{"there is no vLLM: neither in an active virtual environment, nor in " + peerVLLM + ", nor on PATH", fix}
	}
	return program, nil
}

func vllmIn(environment string) (string, error) {
	program, err := filepath.Abs(filepath.Join(environment, "bin", "vllm"))
	if err == nil {
		_, err = os.Stat(program)
	}
	return program, err
}

// interpreterOf is the Python beside a command that pip has installed.
func interpreterOf(program string) string {
	if behind, err := filepath.EvalSymlinks(program); err == nil {
		program = behind
	}
	beside := filepath.Join(filepath.Dir(program), "python")
	if _, err := os.Stat(beside); err == nil {
		return beside
	}
	return "python3"
}

// checkLimit is far beyond what an interpreter takes to look for three names.
const checkLimit = time.Minute

// whatPythonHas looks for packages without importing vLLM, which takes seconds.
const whatPythonHas = `
import importlib.metadata, importlib.util, json
def has(name):
    try: return importlib.util.find_spec(name) is not None
    except ImportError: return False
try: version = importlib.metadata.version("vllm")
except importlib.metadata.PackageNotFoundError: version = ""
print(json.dumps({"vllm": has("vllm"), "version": version, "connector": has("meridian.vllm")}))
`

// check asks the interpreter for what it has.
func (v *VLLM) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	command := exec.CommandContext(ctx, v.Python, "-c", whatPythonHas)
	command.Env = append(os.Environ(), "PYTHONSAFEPATH=1") // servers do not import from where they are started either
	command.WaitDelay = time.Second
	var said strings.Builder
	command.Stderr = &said
	out, err := command.Output()
	if err != nil {
		return fmt.Errorf("cell: %s does not tell what packages it has: %w: %.500s", v.Python, err, said.String())
	}
	var has struct {
		VLLM, Connector bool
		Version         string
	}
	if err := json.Unmarshal(out, &has); err != nil {
		return fmt.Errorf("cell: %s says %.200q of its packages: %w", v.Python, out, err)
	}
	v.Version = has.Version
	switch {
	case !has.VLLM:
		return &NoVLLMError{fmt.Sprintf("%s is there, but %s has no package vllm", v.Program, v.Python), "--venv DIR names the virtual environment that has it"}
	case !has.Connector:
		return &NoVLLMError{
			fmt.Sprintf("%s has vLLM %s, but not Meridian's connector, meridian.vllm", v.Python, v.Version),
			fmt.Sprintf("in a checkout of Meridian: %s -m pip install ./python", v.Python),
		}
	}
	return nil
}

// Server is one `vllm serve`.
type Server struct {
	Name string
	Kind Kind
	// Model is a directory, or a name that vLLM finds; ServedName is what
	// requests call it.
	Model, ServedName string
	Cut               Cut
	// Transfer is --kv-transfer-config; nil for a server that serves alone.
	Transfer any
	// Address is where it listens; empty means a free port.
	Address string
	// Together is how many servers share the machine.
	Together int
	// Defaults come before the arguments of every server, and Args and Environment behind them.
	Defaults, Args, Environment []string
}

// firstServer is near where gateways are.
const firstServer = "127.0.0.1:8100"

// Serve plans a server.
func (v *VLLM) Serve(s Server) (Plan, error) {
	if s.Address == "" {
		var err error
		if s.Address, err = freeFrom(cmp.Or(v.First, firstServer)); err != nil {
			return Plan{}, err
		}
	}
	host, port, err := net.SplitHostPort(s.Address)
	if err != nil {
		return Plan{}, err
	}
	args := []string{
		"serve", s.Model, "--served-model-name", s.ServedName, "--host", host, "--port", port, "--block-size", strconv.Itoa(s.Cut.BlockTokens),
	}
	if s.Cut.TP > 1 {
		args = append(args, "--tensor-parallel-size", strconv.Itoa(s.Cut.TP))
	}
	if s.Cut.PP > 1 {
		args = append(args, "--pipeline-parallel-size", strconv.Itoa(s.Cut.PP))
	}
	if s.Transfer != nil {
		text, err := json.Marshal(s.Transfer)
		if err != nil {
			return Plan{}, err
		}
		args = append(args, "--kv-transfer-config", string(text))
	}
	at := url.URL{Scheme: "http", Host: s.Address}
	return Plan{
		Name: s.Name, Kind: s.Kind, Engine: EngineVLLM, Command: []string{v.Python, v.Program}, Args: slices.Concat(args, s.Defaults, v.Args, s.Args),
		Environment: append(serverEnvironment(s), s.Environment...), URL: at.String(), Health: at.JoinPath("health").String(), Patience: cmp.Or(v.Patience, defaultPatience),
	}, nil
}

// serverEnvironment is what servers on one machine need so as not to be in each
// other's way; the operator's environment has the last word.
func serverEnvironment(s Server) []string {
	cores := max(1, runtime.NumCPU()/max(1, s.Together*s.Cut.TP*s.Cut.PP))
	wanted := [][2]string{
		{"VLLM_CPU_KVCACHE_SPACE", "1"},         // GiB; else each takes most of the memory
		{"VLLM_CPU_OMP_THREADS_BIND", "nobind"}, // else all sit on the same cores
		{"OMP_NUM_THREADS", strconv.Itoa(cores)},
	}
	if info, err := os.Stat(s.Model); err == nil && info.IsDir() {
		wanted = append(wanted, [2]string{"HF_HUB_OFFLINE", "1"}) // everything is there
	}
	var all []string
	for _, variable := range wanted {
		if _, set := os.LookupEnv(variable[0]); !set {
			all = append(all, variable[0]+"="+variable[1])
		}
	}
	return all
}

// handOver is the --kv-transfer-config of a worker of the cell. One for prompts is kv_both
// to vLLM: it loads what the cell's cache has, and only where vLLM knows that it keeps
// blocks from new requests that a step under way may still write.
func handOver(id string, kind Kind, address, state string) map[string]any {
	roles := map[Kind]string{Prefill: "kv_both", Decode: "kv_consumer"}
	return map[string]any{
		"kv_connector": "Connector", "kv_connector_module_path": "meridian.vllm", "kv_role": roles[kind], "engine_id": id,
		"kv_load_failure_policy":    "recompute",
		"kv_connector_extra_config": map[string]any{"state_dir": state, "agent": string(kind), "url": "http://" + address, "role": string(kind)},
	}
}

// servers plans the cell's workers.
func (s Spec) servers(at places) (plans []Plan, err error) {
	taken := []string{at.listen, at.admin}
	together := s.Workers.Prefill + s.Workers.Decode
	for _, side := range []struct {
		kind    Kind
		cut     Cut
		workers int
	}{{Prefill, s.Prefill, s.Workers.Prefill}, {Decode, s.Decode, s.Workers.Decode}} {
		for i := range side.workers {
			address, err := freeFrom(cmp.Or(s.VLLM.First, firstServer), taken...)
			if err != nil {
				return nil, err
			}
			taken = append(taken, address)
			id := fmt.Sprintf("%s-%d", side.kind, i)
			plan, err := s.VLLM.Serve(Server{
				Name: id, Kind: side.kind, Model: s.Model, ServedName: s.servedName(), Cut: side.cut, Address: address, Together: together,
				Transfer: handOver(id, side.kind, address, at.state), Defaults: s.VLLM.Governed, Environment: s.VLLM.Settings,
			})
			if err != nil {
				return nil, err
			}
			plans = append(plans, plan)
		}
	}
	return plans, nil
}

func (v *VLLM) validate(s Spec) error {
	for _, cut := range []Cut{s.Prefill, s.Decode} {
		if cut.Layout != vllmLayout {
			return fmt.Errorf("cell: layout %s: vLLM chooses its layout itself; leave it out", cut.Layout)
		}
	}
	if v.Program == "" || v.Python == "" {
		return errors.New("cell: vLLM without a program; FindVLLM finds it")
	}
	return nil
}

// vllmLayout is the layout of a cut that says nothing of it.
const vllmLayout = "LBHNC"
