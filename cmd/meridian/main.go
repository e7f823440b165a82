// Command meridian is the whole product in one static binary: today the tools
// around the wire format, the configuration and the machine; the agent, the
// gateway and the rest join it as they are built.
//
// Each command is a struct with a Run method in a file of its own. Results go
// to standard output, errors to standard error; the exit status is 0 for
// success, 1 for a failure, and 2 for wrong usage or invalid input.
package main

import (
	"encoding/json"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"meridian/models"
	"meridian/mrdn"
)

type commands struct {
	Config    string `placeholder:"FILE" env:"MERIDIAN_CONFIG" type:"path" help:"Configuration file; else ./meridian.toml, else ~/.config/meridian/meridian.toml, else defaults."`
	LogFormat string `enum:"text,json" default:"text" help:"How errors and logs are written: text for people, json for programs."`

	Version    versionCommand    `cmd:"" help:"Say which build this is."`
	ConfigCmds configCommands    `cmd:"" name:"config" help:"Write, check, show and explain meridian.toml."`
	Frame      frameCommands     `cmd:"" help:"Encode, inspect and verify MRDN frames."`
	Doctor     doctorCommand     `cmd:"" help:"Tell what this machine has and what each thing enables."`
	Completion completionCommand `cmd:"" help:"Print a completion script for a shell."`
	Complete   completeCommand   `cmd:"" name:"__complete" hidden:"" passthrough:""`
}

// stdio is what a command reads and writes, so that tests can bring their own.
type stdio struct {
	in       io.Reader
	out, err io.Writer
}

const description = `Meridian moves KV cache between the machines that serve one LLM request, and decides, phase by phase, who runs next.

"meridian COMMAND --help" tells more about each command.`

func newParser(c *commands, io *stdio) (*kong.Kong, error) {
	return kong.New(c,
		kong.Name("meridian"),
		kong.Description(description),
		kong.Writers(io.out, io.err),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true}),
		kong.Bind(io, c),
		kong.Vars{"models": strings.Join(models.Names(), ", "), "maxbody": strconv.Itoa(mrdn.DefaultMaxBody)},
		kong.Exit(func(code int) { panic(exitRequest(code)) }),
	)
}

// exitRequest is how kong asks to stop after --help.
type exitRequest int

// writeJSON writes v for programs: one object, nothing escaped for HTML.
func (s *stdio) writeJSON(v any) error {
	encoder := json.NewEncoder(s.out)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}

// run is main without the process: it returns the exit status.
func run(args []string, io *stdio) (status int) {
	defer func() {
		switch request := recover().(type) {
		case nil:
		case exitRequest:
			status = int(request)
		default:
			panic(request)
		}
	}()
	var c commands
	parser, err := newParser(&c, io)
	if err != nil {
		panic(err) // the command structs are wrong: no user can cause this
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	context, err := parser.Parse(args)
	if err == nil {
		err = context.Run()
	}
	return report(io.err, c.LogFormat, err)
}

func main() {
	os.Exit(run(os.Args[1:], &stdio{in: os.Stdin, out: os.Stdout, err: os.Stderr}))
}
