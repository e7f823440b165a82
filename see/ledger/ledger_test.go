package ledger

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func record(n int) *Record {
	return &Record{ID: fmt.Sprintf("%032x", n), Began: time.Unix(int64(n), 0).UTC(), Endpoint: "/v1/completions", Outcome: Finished, Status: 200}
}

func open(t *testing.T, o Options) *Ledger {
	t.Helper()
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, l) })
	return l
}

func closed(t *testing.T, l *Ledger) {
	t.Helper()
	if err := l.Close(t.Context()); err != nil && t.Context().Err() == nil {
		t.Error(err)
	}
}

func ids(records []*Record) []string {
	var all []string
	for _, r := range records {
		all = append(all, strings.TrimLeft(r.ID, "0"))
	}
	return all
}

func TestMemoryIsBounded(t *testing.T) {
	l := open(t, Options{Records: 3})
	for n := range 5 {
		l.Add(record(n + 1))
	}
	if diff := cmp.Diff([]string{"5", "4", "3"}, ids(l.Latest(9))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"5", "4"}, ids(l.Latest(2))); diff != "" {
		t.Error(diff)
	}
	if _, err := l.Find(record(2).ID); !errors.Is(err, ErrNoRecord) {
		t.Errorf("the second is still there: %v", err)
	}
	if r, err := l.Find(record(4).ID); err != nil || r.ID != record(4).ID {
		t.Errorf("got %v, %v", r, err)
	}
	if len(l.byID) != 3 {
		t.Errorf("%d ids are known", len(l.byID))
	}
}

func TestRecordsOutliveTheirProcess(t *testing.T) {
	dir := t.TempDir()
	l := open(t, Options{Dir: dir})
	full := record(7)
	full.Legs = []Leg{
		{Kind: PrefillLeg, Engine: "p0", Transfer: "aa", Ms: 3, KV: "found", KVTokens: 128},
		{Kind: DecodeLeg, Engine: "d0", Transfer: "aa", KV: "handoff", Tokens: 5},
		{Kind: ResumeLeg, Engine: "d1", Transfer: "bb", Problem: "gone"},
	}
	full.Latency = Latency{QueueMs: 1, TTFTMs: 2, TotalMs: 9}
	l.Add(full)
	closed(t, l)
	got, err := FindIn(dir, full.ID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(full, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"aa", "bb"}, got.Transfers()); diff != "" {
		t.Error(diff)
	}
	if text := got.String(); !strings.Contains(text, "d0") || !strings.Contains(text, "cache handoff") || !strings.Contains(text, "cache found (128 tokens)") || !strings.Contains(text, "TTFT 2.00") {
		t.Errorf("it tells:\n%s", text)
	}
	info, err := os.Stat(filepath.Join(dir, FileName))
	if err != nil || info.Mode().Perm() != fileMode {
		t.Errorf("the file is %v, %v", info.Mode(), err)
	}
}

// A crash may tear the last line; what was whole is found, and what comes
// after it too.
// A request is found by its id, by how that begins, by what its client called it,
// and by a transfer that it took part in.
func TestFoundByName(t *testing.T) {
	dir := t.TempDir()
	l := open(t, Options{Dir: dir})
	one, two := record(1), record(2)
	one.ClientID, one.Legs = `order "7"`, []Leg{{Kind: DecodeLeg, Transfer: "abc"}, {Kind: DecodeLeg, Transfer: "def"}}
	two.ClientID = one.ID // which must not pass for the id of the first
	l.Add(one)
	l.Add(two)
	closed(t, l)
	for name, found := range map[string]func() (*Record, error){
		"id":       func() (*Record, error) { return FindIn(dir, one.ID) },
		"client":   func() (*Record, error) { return FindIn(dir, one.ClientID) },
		"transfer": func() (*Record, error) { return OfTransferIn(dir, "def") },
	} {
		if r, err := found(); err != nil || r.ID != one.ID {
			t.Errorf("%s: %v, %v", name, r, err)
		}
	}
	if _, err := OfTransferIn(dir, "de"); !errors.Is(err, ErrNoRecord) {
		t.Errorf("the beginning of a transfer is taken for one: %v", err)
	}
	for prefix, want := range map[string]int{"0000": 2, one.ID: 1, "00001": 0, "order": 0} {
		if ids, err := WithPrefixIn(dir, prefix, 9); err != nil || len(ids) != want {
			t.Errorf("%s: %v, %v", prefix, ids, err)
		}
	}
	if ids, err := WithPrefixIn(dir, "0000", 1); err != nil || len(ids) != 1 {
		t.Errorf("%v, %v", ids, err)
	}
}

func TestTornLine(t *testing.T) {
	dir := t.TempDir()
	for n := range 2 {
		l := open(t, Options{Dir: dir})
		l.Add(record(n + 1))
		closed(t, l)
	}
	whole, err := os.ReadFile(filepath.Join(dir, FileName))
	if err != nil {
		t.Fatal(err)
	}
	for cut := range whole {
		if err := os.WriteFile(filepath.Join(dir, FileName), whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		l := open(t, Options{Dir: dir})
		l.Add(record(3))
		closed(t, l)
		if _, err := FindIn(dir, record(3).ID); err != nil {
			t.Fatalf("cut at %d: the record after it: %v", cut, err)
		}
		_, err := FindIn(dir, record(1).ID)
		if lines := strings.Count(string(whole[:cut]), "\n"); (err == nil) != (lines >= 1 || cut == len(whole)/2-1) {
			t.Fatalf("cut at %d of %d: the record before it: %v", cut, len(whole), err)
		}
	}
}

func TestFilesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		const limit = 4 << 10
		l := open(t, Options{Dir: dir, FileBytes: limit, Flush: time.Millisecond})
		for n := range 400 {
			l.Add(record(n + 1))
			if n%8 == 0 { // it flushes in pieces
				time.Sleep(2 * time.Millisecond)
			}
		}
		closed(t, l)
		var total int64
		files, _ := filepath.Glob(filepath.Join(dir, "*"))
		for _, f := range files {
			info, err := os.Stat(f)
			if err != nil {
				t.Fatal(err)
			}
			total += info.Size()
		}
		if len(files) != 2 || total > 2*limit {
			t.Errorf("%d files with %d bytes, may be 2 with %d", len(files), total, 2*limit)
		}
		latest, _, err := LatestIn(dir, 3)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"190", "18f", "18e"}, ids(latest)); diff != "" {
			t.Error(diff)
		}
	})
}

// A disk that does not take records costs records, not requests.
func TestDiskGone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if _, err := Open(Options{Dir: dir}); err == nil {
		t.Error("a directory that does not exist was opened")
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	l := open(t, Options{Dir: dir, FileBytes: 1, Flush: time.Millisecond})
	l.Add(record(1))
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for n := range 3 * queueLength {
		l.Add(record(n + 2))
	}
	if _, err := l.Find(record(3 * queueLength).ID); err != nil {
		t.Error(err)
	}
	closed(t, l)
	// What was in the buffer may have gone to the file that was removed.
	if lost := l.Dropped(); lost < 2*queueLength {
		t.Errorf("only %d records are counted as lost", lost)
	}
	l.Add(record(9)) // after Close: nothing
}

func TestNothingToFind(t *testing.T) {
	if _, err := FindIn(t.TempDir(), "x"); !errors.Is(err, ErrNoRecord) {
		t.Errorf("got %v", err)
	}
	if all, _, err := LatestIn(t.TempDir(), 5); err != nil || len(all) != 0 {
		t.Errorf("got %v, %v", all, err)
	}
}

func TestSinceMissesNoneUnlessItSaysSo(t *testing.T) {
	l := open(t, Options{Records: 3})
	for n := range 5 {
		l.Add(record(n + 1))
	}
	for name, c := range map[string]struct {
		after       uint64
		n           int
		want        []string
		first, next uint64
	}{
		"the oldest are gone": {0, 9, []string{"3", "4", "5"}, 2, 5},
		"a part":              {2, 2, []string{"3", "4"}, 2, 4},
		"the rest":            {4, 9, []string{"5"}, 4, 5},
		"nothing new":         {5, 9, nil, 5, 5},
		"beyond the end":      {9, 9, nil, 5, 5},
	} {
		records, first, next := l.Since(c.after, c.n)
		if diff := cmp.Diff(c.want, ids(records)); diff != "" || first != c.first || next != c.next {
			t.Errorf("%s: %d to %d, %s", name, first, next, diff)
		}
	}
}
