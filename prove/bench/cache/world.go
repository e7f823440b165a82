package cache

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"meridian/prove/bench"
	"meridian/run/cell"
)

// setup is a cell that is measured: what its engines are, and where its one owner keeps
// things. Without memory there is no cache but the engines' own.
type setup struct {
	model  string
	blocks int // of each engine
	unit   int // tokens of an object
	memory uint64
	disk   uint64
	s3     bool
}

const (
	engineBlock = 16
	// everything is computed where it is decoded: hand-offs have measurements of their own.
	everything = 1 << 20
	owner      = string(cell.Decode)
)

// world is a cell with two engines that serve, at an agent that keeps.
type world struct {
	bench.Opened
	options Options
	dir     string
	cell    *cell.Cell
	s3      *bench.Process
}

func openWorld(ctx context.Context, o Options, s setup) (_ *world, err error) {
	w := &world{options: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.CloseWithin(stopLimit))
		}
	}()
	if w.dir, err = w.Folder(o.Dir); err != nil {
		return w, err
	}
	keeps, err := w.tiers(ctx, s)
	if err != nil {
		return w, err
	}
	units := "MERIDIAN_STORE_BLOCK_TOKENS=" + strconv.Itoa(s.unit)
	spec := cell.Spec{
		Model: s.model, Blocks: s.blocks, DirectTokens: everything, Workers: cell.Workers{Prefill: 1, Decode: 2},
		Prefill: cell.Cut{TP: 1, PP: 1, BlockTokens: engineBlock, Layout: "LBHNC"}, Decode: cell.Cut{TP: 1, PP: 1, BlockTokens: engineBlock, Layout: "LBHNC"},
		AgentEnvironment: map[string][]string{
			owner:                append(keeps, units),
			string(cell.Prefill): {"MERIDIAN_STORE_ENABLED=false", units},
		},
	}
	w.cell, err = cell.Open(ctx, cell.Options{
		StateDir: filepath.Join(w.dir, "cell"), Spec: spec, Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", Program: o.Program, NoRestart: true,
	})
	if err == nil {
		w.Closes(w.cell.Close)
	}
	return w, err
}

// Who asks the S3 server; it listens on loopback and ends with the measurement.
const (
	accessKey = "meridian"
	secretKey = "meridian-bench"
	bucket    = "cache"
)

// tiers is the environment of an agent that keeps things in them.
func (w *world) tiers(ctx context.Context, s setup) ([]string, error) {
	if s.memory == 0 {
		return []string{"MERIDIAN_STORE_ENABLED=false"}, nil
	}
	keeps := []string{"MERIDIAN_STORE_ENABLED=true", "MERIDIAN_STORE_BYTES=" + strconv.FormatUint(s.memory, 10)}
	if s.disk > 0 {
		keeps = append(keeps, "MERIDIAN_STORE_DISK_DIR="+filepath.Join(w.dir, "disk"), "MERIDIAN_STORE_DISK_BYTES="+strconv.FormatUint(s.disk, 10))
	}
	if !s.s3 {
		return keeps, nil
	}
	address, err := w.startS3(ctx)
	return append(keeps, "MERIDIAN_STORE_S3_ENDPOINT=http://"+address, "MERIDIAN_STORE_S3_BUCKET="+bucket, "MERIDIAN_STORE_S3_REQUESTS_PER_SECOND=0",
		"AWS_ACCESS_KEY_ID="+accessKey, "AWS_SECRET_ACCESS_KEY="+secretKey), err
}

// s3Program is where `make peers` put an S3 server, or why there is none.
func (o *Options) s3Program() (string, *bench.Absence) {
	program := filepath.Join(o.PeersDir, "versitygw", "versitygw")
	if _, err := exec.LookPath(program); err != nil {
		return "", &bench.Absence{Peer: "S3", Why: "no versitygw in " + o.PeersDir, Fix: "make peers"}
	}
	absolute, err := filepath.Abs(program)
	if err != nil {
		return "", &bench.Absence{Peer: "S3", Why: err.Error()}
	}
	return absolute, nil
}

// startS3 runs an S3 server on a folder, whose folders are its buckets.
func (w *world) startS3(ctx context.Context) (address string, err error) {
	program, absent := w.options.s3Program()
	if absent != nil {
		return "", fmt.Errorf("%w: %s", bench.ErrPeer, absent)
	}
	folder := filepath.Join(w.dir, "s3")
	if err := os.MkdirAll(filepath.Join(folder, bucket), 0o700); err != nil {
		return "", err
	}
	port, err := bench.FreePort(ctx)
	if err != nil {
		return "", err
	}
	address = "127.0.0.1:" + port
	w.s3, err = bench.StartProcess("versitygw", []string{program, "--port", address, "--access", accessKey, "--secret", secretKey, "--quiet", "posix", folder}, nil)
	if err != nil {
		return "", err
	}
	w.Closes(func(ctx context.Context) error {
		w.s3.Interrupt()
		_ = w.s3.Stop(ctx) // it says of an end that was asked for that it is an error
		return nil
	})
	return address, until(ctx, "versitygw answers", func() (bool, error) {
		response, err := http.Get("http://" + address)
		if err != nil {
			return false, nil // it does not listen yet
		}
		return true, response.Body.Close()
	})
}

// url is where an engine, or the gateway, answers.
func (w *world) url(part string) string { return w.cell.Record().Part(part).URL }

// pids are all processes of the cell.
func (w *world) pids() (all []int) {
	for _, p := range w.cell.Record().Parts {
		if p.Process != nil {
			all = append(all, p.Process.PID)
		}
	}
	if w.s3 != nil {
		all = append(all, w.s3.PID())
	}
	return all
}

// stopLimit is how long everything may take to end.
const stopLimit = 30 * time.Second

// waitLimit is how long something may take that is waited for between measurements.
const waitLimit = time.Minute

// until waits for a condition.
func until(ctx context.Context, what string, is func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	for {
		done, err := is()
		if done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("bench: waited for: %s: %w", what, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

const maxMetrics = 16 << 20

// counts is a series of the owner's metrics, summed over those of its labels that have
// all of some texts.
func (w *world) counts(ctx context.Context, series string, labels ...string) (sum float64, err error) {
	values, err := w.series(ctx, series)
lines:
	for has, v := range values {
		for _, label := range labels {
			if !strings.Contains(has, label) {
				continue lines
			}
		}
		sum += v
	}
	return sum, err
}

// ends is how often each end of a series of the owner's metrics was counted.
func (w *world) ends(ctx context.Context, series string) (Ends, error) {
	values, err := w.series(ctx, series)
	ends := make(Ends)
	for labels, v := range values {
		_, end, _ := strings.Cut(labels, `end="`)
		if end, _, _ = strings.Cut(end, `"`); v > 0 {
			ends[end] += int64(v)
		}
	}
	return ends, err
}

// series is one of the owner's metrics, by labels.
func (w *world) series(ctx context.Context, series string) (map[string]float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.cell.Record().Part("agent-"+owner).Metrics, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	return parseSeries(io.LimitReader(response.Body, maxMetrics), series), nil
}

func parseSeries(text io.Reader, series string) map[string]float64 {
	values := make(map[string]float64)
	for lines := bufio.NewScanner(text); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		name, labels, _ := strings.Cut(name, "{")
		if v, err := strconv.ParseFloat(value, 64); err == nil && name == series {
			values[labels] += v
		}
	}
	return values
}
