package disk

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"meridian/keep/store/record"
	"meridian/keep/store/tier"
	"meridian/keep/store/tier/tiertest"
)

// model is what a folder must keep, may keep, and must not.
type model struct {
	dir     string
	disk    *Disk
	objects map[int]bool // that were put: true if nothing took it since
	broken  bool         // bytes were changed: what was dropped may be back
}

func (m *model) open(t *rapid.T) {
	var err error
	m.disk, err = Open(context.Background(), Options{Dir: m.dir, Bytes: 1 << 30, SegmentBytes: 256 << 10})
	if err != nil {
		t.Fatal(err)
	}
}

func (m *model) close(t *rapid.T) {
	if err := m.disk.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func object(n int) tier.Object { return tiertest.Object(n, (n*7919)%60_000) }

// damage changes the bytes of a segment from an offset on: what has records there, or
// behind it, may be lost.
func (m *model) damage(t *rapid.T, change func(b []byte, at int) []byte) {
	places := make(map[int]place)
	for n := range m.objects {
		if at, is := m.disk.index[record.HashKey(object(n).Key)]; is {
			places[n] = at
		}
	}
	m.close(t)
	names, _ := filepath.Glob(filepath.Join(m.dir, "*"+suffix))
	if len(names) > 0 {
		name := rapid.SampledFrom(names).Draw(t, "segment")
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) > 0 {
			at := rapid.IntRange(0, len(b)-1).Draw(t, "at")
			if err := os.WriteFile(name, change(b, at), 0o600); err != nil {
				t.Fatal(err)
			}
			m.broken = true
			for n, p := range places {
				if filepath.Base(name) == segmentName(p.segment) && int(p.page+p.pages)*page > at {
					m.objects[n] = false
				}
			}
		}
	}
	m.open(t)
}

func (m *model) check(t *rapid.T) {
	for n, must := range m.objects {
		want := object(n)
		got, err := tiertest.Get(context.Background(), m.disk, want.Key)
		switch {
		case err == nil && (!bytes.Equal(got.Payload, want.Payload) || !bytes.Equal(got.Header, want.Header)):
			t.Fatalf("object %d has other bytes", n)
		case err == nil && !must && !m.broken:
			t.Fatalf("object %d is back", n)
		case err != nil && !errors.Is(err, tier.ErrMissing):
			t.Fatal(err)
		case err != nil && must:
			t.Fatalf("object %d is lost: %v", n, err)
		}
	}
}

// Whatever happens to the files, no object ever has other bytes, and what was not
// touched is still there.
func TestCrashes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "disk")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		m := &model{dir: dir, objects: make(map[int]bool)}
		m.open(t)
		defer func() { m.close(t) }()
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				for range rapid.IntRange(1, 8).Draw(t, "objects") {
					n := rapid.IntRange(0, 40).Draw(t, "object")
					if err := m.disk.Put(object(n)); err != nil {
						t.Fatal(err)
					}
					m.objects[n] = true
				}
				if err := m.disk.Flush(context.Background()); err != nil {
					t.Fatal(err)
				}
			},
			"drop": func(t *rapid.T) {
				n := rapid.IntRange(0, 40).Draw(t, "object")
				m.disk.Drop(object(n).Key)
				m.objects[n] = false
			},
			"reopen": func(t *rapid.T) { m.close(t); m.open(t) },
			"cut":    func(t *rapid.T) { m.damage(t, func(b []byte, at int) []byte { return b[:at] }) },
			"flip": func(t *rapid.T) {
				m.damage(t, func(b []byte, at int) []byte {
					b[at] ^= byte(rapid.IntRange(1, 255).Draw(t, "bits"))
					return b
				})
			},
			"zeros": func(t *rapid.T) { // a file system that lost its last writes
				m.damage(t, func(b []byte, at int) []byte { clear(b[at:]); return b })
			},
			"": func(t *rapid.T) { m.check(t) },
		})
	})
}

const writerEnv = "MERIDIAN_TEST_DISK_WRITER"

// writer writes until it is killed, and tells how far it has come.
func writer(dir string) {
	d, err := Open(context.Background(), Options{Dir: dir, Bytes: 1 << 30, SegmentBytes: 4 << 20})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for n := int(d.Stats().Objects); ; n++ {
		if err := d.Put(object(n)); err != nil && !errors.Is(err, tier.ErrBusy) {
			fmt.Println(err)
			os.Exit(1)
		}
		if n%10 == 9 {
			_ = d.Flush(context.Background())
			fmt.Println("kept", n)
		}
	}
}

// A process that is killed leaves whatever it said was kept.
func TestKilledWriter(t *testing.T) {
	dir := t.TempDir()
	for round := range 4 {
		command := exec.Command(os.Args[0])
		command.Env = append(os.Environ(), writerEnv+"="+dir)
		out, err := command.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		hangs := time.AfterFunc(time.Minute, func() { _ = command.Process.Kill() })
		kept, until := -1, 5+rand.IntN(30) // it writes on while it is being killed
		for lines := bufio.NewScanner(out); lines.Scan(); until-- {
			if until == 0 {
				_ = command.Process.Kill()
			}
			if _, err := fmt.Sscanf(lines.Text(), "kept %d", &kept); err != nil {
				t.Error(lines.Text())
			}
		}
		hangs.Stop()
		if err := command.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Fatalf("the writer ended: %v", err)
		}
		d := open(t, Options{Dir: dir, Bytes: 1 << 30, SegmentBytes: 4 << 20})
		for n := range kept + 1 {
			got, err := tiertest.Get(t.Context(), d, object(n).Key)
			if err != nil || !bytes.Equal(got.Payload, object(n).Payload) {
				t.Fatalf("round %d: object %d of %d that were kept: %v", round, n, kept+1, err)
			}
		}
		if kept < 50 {
			t.Errorf("round %d: no more than %d objects were kept", round, kept+1)
		}
		if err := d.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// FuzzScan: whatever is in a file, a scan stays within it and comes to an end.
func FuzzScan(f *testing.F) {
	var whole []byte
	for n, o := range []tier.Object{object(0), object(1), {Key: []byte("k"), Payload: make([]byte, 5000)}} {
		r := record.Record{Key: o.Key, Header: o.Header, Payload: o.Payload, Dropped: n == 1}
		at := len(whole)
		whole = append(whole, make([]byte, record.Size(&r, page))...)
		if err := record.Encode(whole[at:], &r); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(whole)
	f.Add(whole[:len(whole)-1])
	f.Add(whole[4096:])
	f.Fuzz(func(t *testing.T, b []byte) {
		before := int64(0)
		end, err := scan(bytes.NewReader(b), int64(len(b)), func(r found) {
			if int64(r.place.page)*page != before || r.place.pages == 0 {
				t.Fatalf("a record at page %d of %d pages, want one at %d", r.place.page, r.place.pages, before)
			}
			before += int64(r.place.pages) * page
		})
		if err != nil || end != before || end > int64(len(b)) {
			t.Fatalf("the scan ends at %d, its records at %d of %d: %v", end, before, len(b), err)
		}
	})
}
