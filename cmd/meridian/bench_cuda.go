package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"meridian/prove/bench"
	"meridian/prove/bench/gpu"
)

type benchCUDA struct {
	Block      []bench.Size `default:"4KiB,16KiB,64KiB" placeholder:"SIZE" help:"Block sizes; default ${default}."`
	Total      bench.Size   `default:"256MiB" placeholder:"SIZE" help:"Bytes that one round moves; default ${default}."`
	Rounds     int          `default:"5" placeholder:"N" help:"Rounds that each figure is the median of; default ${default}."`
	Python     string       `default:"python3" placeholder:"PYTHON" help:"A Python with torch and nixl, to be measured beside; '' for none. Default ${default}."`
	CPUProfile string       `name:"cpuprofile" type:"existingdir" placeholder:"DIR" help:"Write CPU profiles of both processes there."`
	JSON       rowsFile     `placeholder:"[FILE]" help:"Print the rows as JSON instead of the table; with FILE, write them there beside it."`
}

func (c *benchCUDA) Help() string {
	return "Between two processes on the first GPU, with blocks in random order: over host, with and without sums, to and from host memory, and over tcp; beside it, " +
		"CUDA's own copies, NIXL and torch in the same run, and what a loop of matrix products on that GPU loses meanwhile. It needs a GPU and meridian-accel."
}

func (c *benchCUDA) Run(std *stdio) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	stopProfile, err := bench.StartProfile(c.CPUProfile, "posting")
	if err != nil {
		return err
	}
	serve := []string{self, "bench", "__gpu"}
	if c.CPUProfile != "" {
		serve = append(serve, "--cpuprofile", c.CPUProfile)
	}
	report, err := gpu.Run(ctx, gpu.Options{
		Blocks: c.Block, Total: c.Total, Rounds: c.Rounds, ServeCommand: serve, Python: c.Python, Version: thisBuild().Version, Progress: progressOn(std.err),
	})
	if err := measured(ctx, std, errors.Join(err, stopProfile()), "bench cuda"); err != nil {
		return err
	}
	return printReport(std, report, c.JSON)
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
