package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"meridian/prove/bench/serving"
	"meridian/run/cell"
)

type benchVLLM struct {
	Venv     string   `placeholder:"DIR" help:"Virtual environment with vLLM and Meridian's Python package (default: the active one, else .peers/vllm, else vllm on PATH)."`
	Model    string   `default:"tiny" placeholder:"MODEL" help:"Whose cache the model has, by name or as a shape in fp32, e.g. layers=4,kv_heads=8,head_dim=128,dtype=fp32; weights are random; default ${default}."`
	Tokens   []int    `default:"128,512,900" placeholder:"N" help:"How long prompts are; default ${default}."`
	Requests int      `default:"8" placeholder:"N" help:"Prompts that each route answers in a round, one after the other; default ${default}."`
	Rounds   int      `default:"5" placeholder:"N" help:"Rounds; default ${default}."`
	Peers    []string `default:"auto" placeholder:"NAME" help:"Connectors of vLLM to measure beside: auto for all that work here, none, or some of ${vllm_peers}; default ${default}."`
	PeersDir string   `default:".peers" env:"MERIDIAN_PEERS_DIR" placeholder:"DIR" help:"Where make peers put NIXL; default ${default}."`
	JSON     rowsFile `placeholder:"[FILE]" help:"Print the rows as JSON instead of the table; with FILE, write them there beside it."`
}

func (c *benchVLLM) Help() string {
	return "Servers of vLLM, all at the same time: one that serves alone; two with Meridian's connector, in a cell; two with each connector that comes " +
		"with vLLM, ExampleConnector over files in memory and NixlConnector. Each route has a gateway before it. In every round each of these answers the same " +
		"new prompts in turn, while the others are stopped, and what it adds to the time of the first token is told beside the server alone. A run takes several minutes, and 2 GiB of memory for each server."
}

func (c *benchVLLM) Run(std *stdio) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	v, err := cell.FindVLLM(ctx, c.Venv)
	if err != nil {
		return err
	}
	found, err := serving.RunVLLM(ctx, serving.VLLMOptions{
		VLLM: v, Shape: c.Model, Tokens: c.Tokens, Requests: c.Requests, Rounds: c.Rounds, Peers: c.Peers, PeersDir: c.PeersDir,
		Version: thisBuild().Version, Progress: progressOn(std.err),
	})
	if err := measured(ctx, std, err, "bench vllm"); err != nil {
		return err
	}
	return printReport(std, found, c.JSON)
}
