package serving

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"meridian/prove/bench"
	"meridian/run/cell"
	"meridian/serve/openai"
)

// trial is a folder, cells in it, and who asks them, for as long as something is measured.
type trial struct {
	bench.Setting
	bench.Opened
	scratch string
	client  *http.Client
	cells   []*cell.Cell
}

// newTrial makes the folder. The caller closes the trial.
func newTrial(s bench.Setting, clients int) (*trial, error) {
	t := &trial{Setting: s, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}}
	var err error
	t.scratch, err = t.Folder("") // short enough for a socket's address
	return t, err
}

// open starts a cell in a folder of its own.
func (t *trial) open(ctx context.Context, name string, spec cell.Spec, environment ...string) (*cell.Cell, error) {
	c, err := cell.Open(ctx, cell.Options{
		StateDir: filepath.Join(t.scratch, name), Spec: spec, Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", Program: t.Program, NoRestart: true,
		Environment: environment, Watch: t.tellStarts,
	})
	if err == nil {
		t.cells = append(t.cells, c)
		t.Closes(c.Close)
	}
	return c, err
}

func (t *trial) tellStarts(e cell.Event) {
	if e.State == cell.Starting && e.Detail == "" {
		t.Tell(bench.Progress{What: "starting " + e.Part})
	}
}

// cellsStop is how long all cells of a trial may take to end.
const cellsStop = time.Minute

func (t *trial) close() error {
	t.client.CloseIdleConnections()
	return t.CloseWithin(cellsStop)
}

// engines are the parts of a cell that generate.
func engines(c *cell.Cell) (all []cell.PartRecord) {
	for _, part := range c.Record().Parts {
		if part.Kind == cell.Prefill || part.Kind == cell.Decode {
			all = append(all, part)
		}
	}
	return all
}

// addGateway starts a gateway beside a cell that knows only what its flags name.
func addGateway(ctx context.Context, c *cell.Cell, scratch, name, admin string, flags ...string) (cell.PartRecord, error) {
	name = "gateway-" + name
	state := filepath.Join(scratch, name)
	if err := os.MkdirAll(state, 0o700); err != nil {
		return cell.PartRecord{}, err
	}
	args := append([]string{"gateway", "--state", state, "--listen", "127.0.0.1:0", "--admin", admin}, flags...)
	return c.Add(ctx, cell.Plan{Name: name, Kind: cell.Beside, Args: args, Ready: "gateway ready at "})
}

// rows measures a row for each of several lengths.
func rows[Row any](s *bench.Setting, what string, lengths []int, rounds int, row func(length int, progress func(round int, who string)) (Row, error)) ([]Row, error) {
	all := make([]Row, 0, len(lengths))
	for i, length := range lengths {
		next, err := row(length, func(round int, who string) {
			s.Tell(bench.Progress{Row: i + 1, Rows: len(lengths), What: fmt.Sprintf(what, length), Round: round, Rounds: rounds, Who: who})
		})
		if err != nil {
			return nil, err
		}
		all = append(all, next)
	}
	return all, nil
}

// inTurn has every side take its turn in each round, so that what the machine does
// meanwhile meets all of them; none always comes after the same one. Round 0 warms up.
func inTurn[Side any](rounds int, sides []Side, take func(round int, side Side) error) error {
	for round := range rounds + 1 {
		for k := range sides {
			if err := take(round, sides[(k+round)%len(sides)]); err != nil {
				return err
			}
		}
	}
	return nil
}

const (
	// settling is how long work may go on after an answer's end that belongs to it.
	settling = 30 * time.Millisecond
	// patience bounds the wait for what idle parts of a cell do by themselves.
	patience = time.Minute
)

// settle lets work end that goes on behind an answer.
func settle(ctx context.Context) error {
	select {
	case <-time.After(settling):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// await asks again and again what is still missing, until nothing is.
func await(ctx context.Context, missing func() (string, error)) error {
	for deadline := time.Now().Add(patience); ; {
		what, err := missing()
		switch {
		case err != nil:
			return err
		case what == "":
			return nil
		case time.Now().After(deadline):
			return errors.New(what)
		}
		if err := settle(ctx); err != nil {
			return err
		}
	}
}

// letters are so many tokens: reference engines have one for each.
func letters(dice *rand.Rand, n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = 'a' + dice.Uint32N(26)
	}
	return ids
}

// stream reads an answer to its end, chunk by chunk; what a chunk has is there until the next.
func stream(body io.Reader, take func(*openai.Chunk) error) error {
	events := openai.NewEventReader(body, openai.MaxEvent)
	var chunk openai.Chunk
	for {
		data, err := events.Next()
		if err != nil {
			return err
		}
		if string(data) == openai.Done {
			return nil
		}
		if !chunk.Parse(data) || chunk.Fault != nil {
			return fmt.Errorf("the stream has %.200s", data)
		}
		if err := take(&chunk); err != nil {
			return err
		}
	}
}
