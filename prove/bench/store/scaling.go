package store

import (
	"context"
	"errors"
	"fmt"
	"io"

	"meridian/prove/bench"
)

// ScalingOptions is what RunScaling measures.
type ScalingOptions struct {
	// Options: of them Objects, Clients (the producers), Total, Rounds and how
	// to run count.
	Options
	Owners []int
	Pages  []bench.Size
}

const maxOwners = 16

func (o *ScalingOptions) validate() error {
	o.Ops, o.Where, o.Peers = []string{put}, []string{sameHost}, []string{"none"}
	if err := o.Options.validate(); err != nil {
		return err
	}
	if len(o.Owners) == 0 || len(o.Pages) == 0 {
		return fmt.Errorf("%w: nothing to measure: say --owners and --page", bench.ErrOptions)
	}
	for _, owners := range o.Owners {
		if owners < 1 || owners > maxOwners {
			return fmt.Errorf("%w: %d owners; 1 to %d", bench.ErrOptions, owners, maxOwners)
		}
	}
	for _, page := range o.Pages {
		if page.Bytes < 4<<10 || page.Bytes > 1<<30 {
			return fmt.Errorf("%w: pages of %s; 4KiB to 1GiB", bench.ErrOptions, page)
		}
	}
	return nil
}

// ScalingReport is how puts go with many producers and owners, asked for (v1) and
// without asking (v2).
type ScalingReport struct {
	Rows []ScalingRow
	head Report
}

// ScalingRow is one line of that table.
type ScalingRow struct {
	Op        string `json:"op"`
	Object    string `json:"object"`
	Page      string `json:"page"`
	Producers int    `json:"producers"`
	Owners    int    `json:"owners"`
	V1        Speed  `json:"v1"`
	V2        Speed  `json:"v2"`
	// Ratio is how many times as many bytes a second v2 stores: the median of
	// the rounds' ratios.
	Ratio float64 `json:"ratio"`
}

// Speed is of one way to put.
type Speed struct {
	GBps float64 `json:"gbps"`
	P50  float64 `json:"p50_us"`
	P99  float64 `json:"p99_us"`
}

func (s standing) speed() Speed { return Speed{s.gbps.Median, s.p50, s.p99} }

func newScalingRow(c Case, object, page bench.Size, owners int, laps map[string][]Lap) ScalingRow {
	asked, mapped := newStanding(c, laps[oursName]), newStanding(c, laps["v2"])
	return ScalingRow{
		Op: c.Op, Object: object.Text, Page: page.Text, Producers: c.Clients, Owners: owners,
		V1: asked.speed(), V2: mapped.speed(), Ratio: ratio(mapped.scores, asked.scores),
	}
}

// plannedOpener starts owners on this host, whose clients write in pages of so many
// bytes.
type plannedOpener func(ctx context.Context, o Options, owners int, page uint32) (contender, error)

// RunScaling measures puts within one host.
func RunScaling(ctx context.Context, o ScalingOptions) (*ScalingReport, error) {
	return runScaling(ctx, o, openPlanned)
}

func runScaling(ctx context.Context, o ScalingOptions, planned plannedOpener) (*ScalingReport, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	r := &ScalingReport{Rows: []ScalingRow{}, head: *newReport(o.Options)}
	meter := bench.StartMeter(nil)
	for _, owners := range o.Owners {
		for _, page := range o.Pages {
			if err := r.measure(ctx, o, planned, owners, page); err != nil {
				return nil, err
			}
		}
	}
	r.head.Others = meter.Others()
	return r, nil
}

func (r *ScalingReport) measure(ctx context.Context, o ScalingOptions, planned plannedOpener, owners int, page bench.Size) (err error) {
	f := &field{Head: &r.head.Head, Peers: []contender{&mapped{owners: owners, page: uint32(page.Bytes)}}}
	opening, cancel := context.WithTimeout(ctx, openLimit)
	defer cancel()
	m, err := planned(opening, o.Options, owners, uint32(page.Bytes))
	if err != nil {
		return err
	}
	f.Ours = append(f.Ours, m)
	defer func() { err = errors.Join(err, f.Close()) }()
	cases, objects := o.cases()
	for i, c := range cases {
		what := fmt.Sprintf("put %s in pages of %s, producers: %d, owners: %d", objects[i], page, c.Clients, owners)
		h := newHeat(f, o.Options, bench.Progress{Row: len(r.Rows) + 1, Rows: len(cases) * len(o.Owners) * len(o.Pages), What: what}, i, c)
		if err := h.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if len(f.Peers) == 0 {
			return fmt.Errorf("%s: %v", what, r.head.Absent) // what is measured is no guest
		}
		r.Rows = append(r.Rows, newScalingRow(c, objects[i], page, owners, h.laps))
	}
	return nil
}

// WriteJSON writes the rows for programs.
func (r *ScalingReport) WriteJSON(w io.Writer) error {
	return bench.WriteJSON(w, struct {
		Rows []ScalingRow `json:"rows"`
	}{r.Rows})
}

// WriteText writes a table for people.
func (r *ScalingReport) WriteText(w io.Writer) error {
	o := &r.head.options
	note := fmt.Sprintf("puts within one host; v1: the owner is asked for room, v2: the producer has the arena mapped and takes it; GB/s (1e9 bytes), "+
		"median of %d rounds of %s or %d objects; P50, P99: µs of one put; ×: v2's GB/s over v1's, round by round\n\n", o.Rounds, o.Total, mostOperations)
	return bench.Write(w, r.head.Text(), note, bench.Table("OBJECT\tPAGE\tPRODUCERS\tOWNERS\tV1\tP50\tP99\tV2\tP50\tP99\t×", r.Rows, func(row *ScalingRow) string {
		return fmt.Sprintf("%s\t%s\t%d\t%d\t%s\t%s\t%.2f", row.Object, row.Page, row.Producers, row.Owners, row.V1, row.V2, row.Ratio)
	}))
}

func (s Speed) String() string {
	return fmt.Sprintf("%.2f\t%s\t%s", s.GBps, micros(s.P50), micros(s.P99))
}
