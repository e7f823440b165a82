package main

import (
	"context"
	"errors"
	"os"

	"meridian/prove/bench"
	"meridian/prove/bench/gpu"
)

type benchCUDA struct {
	gpu.Options
	CPUProfile string   `name:"cpuprofile" type:"existingdir" placeholder:"DIR" help:"Write CPU profiles of both processes there."`
	JSON       rowsFile `placeholder:"[FILE]" help:"Print the rows as JSON instead of the table; with FILE, write them there beside it."`
}

func (c *benchCUDA) Help() string {
	return "Between two processes on the first GPU, with blocks in random order: over host, with and without sums, to and from host memory, and over tcp; beside it, " +
		"CUDA's own copies, NIXL and torch in the same run, and what a loop of matrix products on that GPU loses meanwhile. It needs a GPU and meridian-accel."
}

func (c *benchCUDA) Run(std *stdio) error {
	var err error
	if c.ServeCommand, err = ourselves("bench", "__gpu"); err != nil {
		return err
	}
	if c.CPUProfile != "" {
		c.ServeCommand = append(c.ServeCommand, "--cpuprofile", c.CPUProfile)
	}
	stopProfile, err := bench.StartProfile(c.CPUProfile, "posting")
	if err != nil {
		return err
	}
	c.Setting = settingOf(std)
	return measure(std, "bench cuda", func(ctx context.Context, o gpu.Options) (*gpu.Report, error) {
		report, err := gpu.Run(ctx, o)
		return report, errors.Join(err, stopProfile())
	}, c.Options, c.JSON)
}

// benchGPU is the serving process of bench cuda.
type benchGPU struct {
	CPUProfile string `name:"cpuprofile" type:"existingdir"`
}

func (c *benchGPU) Run(std *stdio) error {
	stop, err := bench.StartProfile(c.CPUProfile, "serving")
	if err != nil {
		return err
	}
	return errors.Join(gpu.Serve(context.Background(), os.Stdin, std.out), stop())
}
