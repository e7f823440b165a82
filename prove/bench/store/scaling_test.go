package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"meridian/prove/bench"
)

func planned(f *fakeStore) plannedOpener {
	return func(ctx context.Context, o Options, _ int, _ uint32) (contender, error) {
		return f.open(ctx, o, sameHost)
	}
}

func TestScaling(t *testing.T) {
	o := ScalingOptions{Options: smallRun(t), Owners: []int{1, 2}, Pages: []bench.Size{size(t, "128KiB"), size(t, "256KiB")}}
	o.Objects = []bench.Size{size(t, "512KiB")}
	report, err := runScaling(t.Context(), o, planned(newFake()))
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := report.WriteJSON(&text); err != nil {
		t.Fatal(err)
	}
	var file struct{ Rows []ScalingRow }
	if err := json.Unmarshal(text.Bytes(), &file); err != nil {
		t.Fatal(err)
	}
	for _, row := range file.Rows {
		if row.V1.GBps <= 0 || row.V2.GBps <= 0 || row.V2.P50 <= 0 || row.V2.P99 < row.V2.P50 || row.Ratio <= 0 {
			t.Errorf("%+v", row)
		}
	}
	if last := file.Rows[len(file.Rows)-1]; len(file.Rows) != 8 || last.Producers != 3 || last.Owners != 2 || last.Page != "256KiB" {
		t.Errorf("%d rows, the last %+v", len(file.Rows), last)
	}
	var table strings.Builder
	if err := report.WriteText(&table); err != nil || !strings.Contains(table.String(), "\n512KiB  256KiB  3          2 ") {
		t.Errorf("%v\n%s", err, table.String())
	}
}

// TestMappedObjectsAreCompared: what v2 stored is read back.
func TestMappedObjectsAreCompared(t *testing.T) {
	m := &mapped{owners: 2, page: 128 << 10}
	c := Case{Op: put, Object: 64 << 10, Clients: 2, Count: 5}
	if err := m.load(t.Context(), 0, c); err != nil {
		t.Fatal(err)
	}
	if err := m.verify(t.Context()); err != nil {
		t.Error(err)
	}
	m.source(3)[100]++
	if err := m.verify(t.Context()); !errors.Is(err, ErrContents) {
		t.Errorf("other contents went unseen: %v", err)
	}
	if err := m.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestScalingOptionsThatMakeNoSense(t *testing.T) {
	for name, change := range map[string]func(o *ScalingOptions){
		"no owners": func(o *ScalingOptions) { o.Owners = []int{0} }, "no page": func(o *ScalingOptions) { o.Pages = nil },
		"small pages": func(o *ScalingOptions) { o.Pages = []bench.Size{size(t, "8B")} },
	} {
		o := ScalingOptions{Options: smallRun(t), Owners: []int{1}, Pages: []bench.Size{size(t, "128KiB")}}
		change(&o)
		if _, err := runScaling(t.Context(), o, planned(newFake())); !errors.Is(err, bench.ErrOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
