//go:build accel

package host

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"meridian/internal/require"
	"meridian/move/cuda"
	"meridian/move/fabric/fabrictest"
	"meridian/move/mem/vram"
)

// lenderVariable makes this binary an engine with memory on a GPU.
const lenderVariable = "HOST_TEST_LENDER"

func init() {
	if os.Getenv(lenderVariable) == "" {
		return
	}
	if err := lendOnRequest(os.Stdin, os.Stdout); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// lendOnRequest answers a number of bytes with the handle of as many, and a handle by
// freeing what it names, until in ends.
func lendOnRequest(in io.Reader, out io.Writer) error {
	d, err := cuda.Open(cuda.Options{})
	if err != nil {
		return err
	}
	lent := make(map[string]*cuda.Memory)
	for lines := bufio.NewScanner(in); lines.Scan(); {
		if m := lent[lines.Text()]; m != nil {
			delete(lent, lines.Text())
			if err := m.Close(); err != nil {
				return err
			}
			fmt.Fprintln(out, "freed")
			continue
		}
		size, err := strconv.ParseUint(lines.Text(), 10, 64)
		if err != nil {
			return err
		}
		const whole = 2 << 20 // what CUDA exports at the least
		m, err := d.Alloc((size + whole - 1) / whole * whole)
		if err != nil {
			return err
		}
		h, err := m.Export()
		if err != nil {
			return err
		}
		name := hex.EncodeToString(h[:])
		lent[name] = m
		fmt.Fprintln(out, name)
	}
	return nil
}

// engineProcess is a process that lends memory of the first GPU.
type engineProcess struct {
	in  io.Writer
	out *bufio.Reader
}

func startEngine(t *testing.T) *engineProcess {
	t.Helper()
	command := exec.Command("/proc/self/exe")
	command.Env = append(os.Environ(), lenderVariable+"=1")
	command.Stderr = os.Stderr
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := command.Wait(); err != nil {
			t.Error(err)
		}
	})
	return &engineProcess{in: in, out: bufio.NewReader(out)}
}

func (e *engineProcess) ask(t testing.TB, line string) string {
	t.Helper()
	if _, err := fmt.Fprintln(e.in, line); err != nil {
		t.Fatal(err)
	}
	answer, err := e.out.ReadString('\n')
	if err != nil {
		t.Fatalf("the engine answers %q: %v", answer, err)
	}
	return strings.TrimSpace(answer)
}

func (e *engineProcess) lend(t testing.TB, sizeBytes uint64) (h cuda.IPCHandle) {
	t.Helper()
	name := e.ask(t, strconv.FormatUint(sizeBytes, 10))
	if n, err := hex.Decode(h[:], []byte(name)); n != len(h) || err != nil {
		t.Fatalf("the engine says %s", name)
	}
	t.Cleanup(func() {
		if said := e.ask(t, name); said != "freed" {
			t.Errorf("the engine says %s", said)
		}
	})
	return h
}

// The suite on this machine's GPU: an engine in a process of its own lends, and both
// agents import what it lends, as two agents of one host do. A process cannot import
// its own memory, so that agents of one process have none of their own here.
func TestGPUSuiteOnDevice(t *testing.T) {
	list, err := cuda.List(nil)
	if err != nil {
		require.Skip(t, "gpu", err.Error())
	}
	engine := startEngine(t)
	pool := vram.NewPool(nil)
	t.Cleanup(func() {
		if c := pool.Counts(); c.Imports != 0 { // movers stay with the pool
			t.Errorf("the agents still have %s", c)
		}
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	})
	o := sharing(t, pool, list[0].UUID).lentSuite(t, engine)
	t.Run("both", func(t *testing.T) { fabrictest.Run(t, o) })
	o.FarSection = nil // host memory
	t.Run("near", func(t *testing.T) { fabrictest.Run(t, o) })
}
