package main

import (
	"context"

	"meridian/prove/bench/serving"
	"meridian/run/cell"
)

type benchVLLM struct {
	Venv string `placeholder:"DIR" help:"Virtual environment with vLLM and Meridian's Python package (default: the active one, else .peers/vllm, else vllm on PATH)."`
	serving.VLLMOptions
	JSON rowsFile `placeholder:"[FILE]" help:"Print the rows as JSON instead of the table; with FILE, write them there beside it."`
}

func (c *benchVLLM) Help() string {
	return "Servers of vLLM, all at the same time: one that serves alone; two with Meridian's connector, in a cell; two with each connector that comes " +
		"with vLLM, ExampleConnector over files in memory and NixlConnector. Each route has a gateway before it. In every round each of these answers the same " +
		"new prompts in turn, while the others are stopped, and what it adds to the time of the first token is told beside the server alone. A run takes several minutes, and 2 GiB of memory for each server."
}

func (c *benchVLLM) Run(std *stdio) error {
	c.Setting = settingOf(std)
	return measure(std, "bench vllm", func(ctx context.Context, o serving.VLLMOptions) (_ *serving.VLLMReport, err error) {
		if o.VLLM, err = cell.FindVLLM(ctx, c.Venv); err != nil {
			return nil, err
		}
		return serving.RunVLLM(ctx, o)
	}, c.VLLMOptions, c.JSON)
}
