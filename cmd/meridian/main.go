// Command meridian is the whole product in one static binary: a cell and its
// parts (directory, agent, engine, gateway), the tools that look at them, and
// those around the wire format, the configuration and the machine.
//
// Each command is a struct with a Run method in a file of its own. Results go
// to standard output, errors to standard error; the exit status is 0 for
// success, 1 for a failure, and 2 for wrong usage or invalid input.
package main

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"meridian/decide/policy"
	"meridian/move/mrdn"
	cachebench "meridian/prove/bench/cache"
	"meridian/prove/bench/serving"
	storebench "meridian/prove/bench/store"
	"meridian/prove/bench/transfer"
	"meridian/prove/replay/workload"
	"meridian/prove/sim"
	"meridian/run/models"
)

type commands struct {
	Config    string `placeholder:"FILE" help:"Configuration file; else the one MERIDIAN_CONFIG names, else ./meridian.toml, else ~/.config/meridian/meridian.toml, else defaults."`
	LogLevel  string `enum:",debug,info,warn,error" default:"" placeholder:"LEVEL" help:"The least serious message that is written: debug, info, warn or error (default: logging.level of the configuration)."`
	LogFormat string `enum:",text,json" default:"" placeholder:"FORMAT" help:"How errors and logs are written: text for people, json for programs (default: logging.format of the configuration)."`

	Up         upCommand         `cmd:"" help:"Run a whole cell on this machine: directory, agents, engines, gateway."`
	Down       downCommand       `cmd:"" help:"Stop the cell that up runs."`
	Status     statusCommand     `cmd:"" help:"Show the parts of the cell that up runs."`
	Logs       logsCommand       `cmd:"" help:"Show what the parts of the cell have said."`
	Chat       chatCommand       `cmd:"" help:"Talk to the cell, or to another server of the OpenAI API."`
	Version    versionCommand    `cmd:"" help:"Say which build this is."`
	ConfigCmds configCommands    `cmd:"" name:"config" help:"Write, check, show and explain meridian.toml."`
	Frame      frameCommands     `cmd:"" help:"Encode, inspect and verify MRDN frames."`
	Plan       planCommand       `cmd:"" help:"Show who sends what to whom when a KV cache moves between two engines."`
	Bench      benchCommands     `cmd:"" help:"Measure, side by side with peers."`
	Sim        simCommand        `cmd:"" help:"Live through made-up worlds full of faults, from a seed, and check what Meridian promises."`
	Replay     replayCommands    `cmd:"" help:"Replay a workload in virtual time under scheduling policies, and say who waits for what."`
	Record     recordCommand     `cmd:"" help:"Write down the workload of a running gateway, without a word of what was said."`
	Load       loadCommand       `cmd:"" help:"Send a workload to a server of the OpenAI API, and measure what its clients see."`
	Doctor     doctorCommand     `cmd:"" help:"Tell what this machine has and what each thing enables."`
	Cert       certCommands      `cmd:"" help:"Make a CA for a cell, issue certificates and show them."`
	Directory  directoryCommand  `cmd:"" help:"Run the directory of a cell (an embedded etcd)."`
	Agent      agentCommand      `cmd:"" help:"Run the agent of a host: it moves caches for the engines that come in at its door."`
	Engine     engineCommand     `cmd:"" help:"Run the reference engine: a small transformer with paged KV memory behind the OpenAI API."`
	Gateway    gatewayCommand    `cmd:"" help:"Serve the OpenAI API with the engines of a cell."`
	Peers      peersCommand      `cmd:"" help:"List the agents of a cell."`
	Targets    targetsCommand    `cmd:"" help:"List where the processes of a cell show their metrics; for Prometheus, too."`
	Top        topCommand        `cmd:"" help:"Show a cell while it works: rates, workers, latency, memory, slow hand-offs."`
	Phases     phasesCommand     `cmd:"" help:"Show the requests of governed engines: phase, budget, entropy, what was decided and why."`
	Explain    explainCommand    `cmd:"" help:"Tell what became of a request or a transfer, and why."`
	Cache      cacheCommands     `cmd:"" help:"Look after the prefixes of prompts that a cell keeps."`
	Store      storeCommands     `cmd:"" help:"Keep objects in the memory of a cell: serve, put, get, list and look after them."`
	Send       sendCommand       `cmd:"" help:"Send a file to an agent that receives."`
	Recv       recvCommand       `cmd:"" help:"Receive files."`
	Completion completionCommand `cmd:"" help:"Print a completion script for a shell."`
	Complete   completeCommand   `cmd:"" name:"__complete" hidden:"" passthrough:""`
}

const description = `Meridian moves KV cache between the machines that serve one LLM request, and decides, phase by phase, who runs next.

"meridian COMMAND --help" tells more about each command.`

func newParser(c *commands, std *stdio) (*kong.Kong, error) {
	return kong.New(c,
		kong.Name("meridian"),
		kong.Description(description),
		kong.Writers(std.out, std.err),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true}),
		kong.Bind(std, c),
		kong.Vars{
			"models": strings.Join(models.Names(), ", "), "maxbody": strconv.Itoa(mrdn.DefaultMaxBody),
			"fabrics": strings.Join(transfer.FabricNames(), ", "), "peers": strings.Join(transfer.PeerNames(), ", "), "vllm_peers": strings.Join(serving.VLLMPeerNames(), ", "),
			"cache_parts": strings.Join(cachebench.Parts(), ","),
			"store_peers": strings.Join(storebench.PeerNames(), ", "),
			"faults":      strings.Join(sim.FaultNames(), ", "),
			"workloads":   strings.Join(workload.Names(), ", "), "policies": strings.Join(policy.Names(), ", "), "profiles": strings.Join(profileNames(), ", "),
		},
		kong.Exit(func(int) { panic(enough{}) }),
	)
}

// enough is how kong stops after --help.
type enough struct{}

func (c *commands) execute(args []string, std *stdio) error {
	defer func() {
		if stop := recover(); stop != nil && stop != (enough{}) {
			panic(stop)
		}
	}()
	parser, err := newParser(c, std)
	if err != nil {
		panic(err) // the command structs are wrong: no user can cause this
	}
	switch {
	case len(args) == 0:
		args = []string{"--help"}
	case args[0] == "--version":
		args = append([]string{"version"}, args[1:]...)
	}
	context, err := parser.Parse(args)
	if err != nil {
		return err
	}
	return context.Run()
}

// run is main without the process: it returns the exit status.
func run(args []string, std *stdio) int {
	out := &output{w: std.out}
	var c commands
	err := c.execute(args, &stdio{in: std.in, out: out, err: std.err, terminal: std.terminal})
	if out.err != nil {
		err = out.err // what there was to say has been lost
	}
	if err == nil {
		return exitOK
	}
	if usage := new(kong.ParseError); errors.As(err, &usage) {
		c = commands{Config: flagIn(args, "config"), LogFormat: flagIn(args, "log-format")}
	}
	return reportFailure(std.err, c.logOptionsInForce(), err)
}

// ballast is memory that is never touched, and so takes none of the machine's. What an
// agent keeps in the heap is small, and its arenas are not in it: without a weight on
// the scales the collector runs after every 4 MiB of messages, and the slowest of small
// gets wait for it, several times as long as they take.
const ballast = 32 << 20

func main() {
	weight := make([]byte, ballast)
	code := run(os.Args[1:], &stdio{in: os.Stdin, out: os.Stdout, err: os.Stderr, terminal: isTerminal(os.Stdout)})
	runtime.KeepAlive(weight)
	os.Exit(code)
}
