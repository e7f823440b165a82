package main

import (
	"meridian/prove/bench"
	cachebench "meridian/prove/bench/cache"
)

type benchCache struct {
	Part     []string     `default:"${cache_parts}" placeholder:"NAME" help:"What to measure: some of ${cache_parts}; default all."`
	Trace    string       `type:"existingfile" placeholder:"FILE" help:"Requests to send: a trace of Mooncake's, or a workload (default: a generated one in the manner of Mooncake's conversations)."`
	Requests int          `default:"200" placeholder:"N" help:"Requests of the trace that are sent, at most: whole conversations of it; default ${default}."`
	Model    string       `default:"small" placeholder:"NAME" help:"Model of the engines that serve the trace: tiny, which computes as fast as a cache can answer, or small; default ${default}."`
	Memory   bench.Size   `default:"512MiB" placeholder:"SIZE" help:"Memory of the store that serves the trace; a quarter of it where there is a tier below; default ${default}."`
	Tokens   int          `default:"900" placeholder:"N" help:"Tokens of the prompts that come from tiers; default ${default}."`
	Prompts  int          `default:"12" placeholder:"N" help:"Prompts that come from each tier; default ${default}."`
	Object   []bench.Size `default:"256KiB,1MiB,4MiB" placeholder:"SIZE" help:"Sizes of objects on disk; default ${default}."`
	Total    bench.Size   `default:"512MiB" placeholder:"SIZE" help:"Bytes that a round writes to the disk and reads; default ${default}."`
	Rounds   int          `default:"5" placeholder:"N" help:"Rounds that each ratio is the median of; default ${default}."`
	JSON     rowsFile     `placeholder:"[FILE]" help:"Print everything as JSON instead of tables; with FILE, write it there beside them."`
	Dir      string       `type:"existingdir" placeholder:"DIR" help:"Where cells and disks of the measurement are (default: the system's directory for temporary files)."`
	PeersDir string       `default:".peers" env:"MERIDIAN_PEERS_DIR" placeholder:"DIR" help:"Where make peers put versitygw, an S3 server; default ${default}."`
	Venv     string       `placeholder:"DIR" help:"Virtual environment with vLLM and Meridian's Python package (default: the active one, else .peers/vllm, else vllm on PATH)."`
}

func (c *benchCache) Help() string {
	return "What the shared cache of prefixes does, in parts. trace: a recorded day, made small in a way that is told, goes through a gateway to two reference engines, " +
		"without a store and with one, of memory, and of little memory with a disk or S3 below; what was found is told beside what a cache without bound and an LRU model of the same bytes find, and why tokens were computed that the model has. " +
		"That model has a prompt as soon as it is sent; a second one, in time, when its first token came in the run, since before that no engine has computed it. " +
		"tiers: a prompt that is computed, and comes from memory, from disk and from S3. disk: objects beside a plain file in the same folder. " +
		"vllm: a prompt that one server of vLLM has computed, at another one, beside computing it and beside vLLM's ExampleConnector; what a miss and keeping cost; two servers at a time, 2 GiB of memory each. " +
		"What is not installed is named and left out. Ratios from one run can be compared; figures from two runs can not."
}

func (c *benchCache) Run(std *stdio) error {
	return measure(std, "bench cache", cachebench.Run, cachebench.Options{
		Parts: c.Part, Trace: c.Trace, Requests: c.Requests, Model: c.Model, Memory: c.Memory, Tokens: c.Tokens, Prompts: c.Prompts, Objects: c.Object, Total: c.Total,
		Rounds: c.Rounds, Dir: c.Dir, PeersDir: c.PeersDir, Venv: c.Venv, Version: thisBuild().Version, Progress: progressOn(std.err),
	}, c.JSON)
}
