package cell

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

func logged(t *testing.T, o LogOptions) []string {
	t.Helper()
	var lines []string
	err := Logs(t.Context(), o, func(l Line) error {
		lines = append(lines, l.Part+": "+l.Text)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

func TestLogsAreMergedByTime(t *testing.T) {
	dir := t.TempDir()
	if err := makePrivate(dir + "/state"); err != nil {
		t.Fatal(err)
	}
	dir += "/state"
	write := func(name, text string) {
		if err := os.WriteFile(logPath(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a", "2026-01-02T03:04:05.001Z one\n2026-01-02T03:04:05.003Z three\nstill three\n")
	write("b", "2026-01-02T03:04:05.002Z two\n2026-01-02T03:04:05.004Z four\n2026-01-02T03:04:05.005Z not yet at its e")
	write("a.log.1", "") // no log of a part
	if err := os.WriteFile(logPath(dir, "a")+".1", []byte("2026-01-02T03:04:05.000Z zero\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	all := "a: zero, a: one, b: two, a: three, a: still three, b: four"
	if got := strings.Join(logged(t, LogOptions{StateDir: dir, Parts: []string{"a", "b"}, Last: -1}), ", "); got != all {
		t.Errorf("%s\nwant %s", got, all)
	}
	if got := strings.Join(logged(t, LogOptions{StateDir: dir, Parts: []string{"a"}, Last: 2}), ", "); got != "a: three, a: still three" {
		t.Error(got)
	}
	cut := make(map[string]int)
	told := LogOptions{StateDir: dir, Parts: []string{"a", "b"}, Last: 1, Cut: func(part string, lines int) { cut[part] = lines }}
	if got := strings.Join(logged(t, told), ", "); got != "a: still three, b: four" || cut["a"] != 3 || cut["b"] != 1 {
		t.Errorf("%s, cut %v", got, cut)
	}
	since := time.Date(2026, 1, 2, 3, 4, 5, 3e6, time.UTC)
	if got := strings.Join(logged(t, LogOptions{StateDir: dir, Parts: []string{"a", "b"}, Last: -1, Since: since}), ", "); got != "a: three, a: still three, b: four" {
		t.Error(got)
	}
	err := Logs(t.Context(), LogOptions{StateDir: dir, Parts: []string{"c"}}, nil)
	if err == nil || !strings.Contains(err.Error(), `no log of "c"; there are a,`) {
		t.Error(err)
	}
}

func TestLogsAreFollowedOverRotations(t *testing.T) {
	dir := t.TempDir() + "/state"
	if err := makePrivate(dir); err != nil {
		t.Fatal(err)
	}
	j, err := openPartLog(dir, "a", false)
	if err != nil {
		t.Fatal(err)
	}
	defer j.close()
	j.write("line 0")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const last = 12
	next := 0
	err = Logs(ctx, LogOptions{StateDir: dir, Last: -1, Follow: true}, func(l Line) error {
		if l.Part == "late" {
			cancel()
			return nil
		}
		if want := fmt.Sprintf("line %d", next); l.Text != want {
			t.Errorf("%q, want %q", l.Text, want)
		}
		next++
		switch {
		case next == last: // parts that come later are heard too
			late, err := openPartLog(dir, "late", false)
			if err != nil {
				return err
			}
			late.write("hello")
			late.close()
		case next%3 == 0:
			j.mu.Lock()
			j.bytes = maxLogBytes + 1
			j.mu.Unlock()
			fallthrough
		default:
			if next < last {
				j.write(fmt.Sprintf("line %d", next))
			}
		}
		return nil
	})
	if err != nil || next != last {
		t.Errorf("%d of %d lines, %v", next, last, err)
	}
}

func TestLogsAreBounded(t *testing.T) {
	dir := t.TempDir() + "/state"
	if err := makePrivate(dir); err != nil {
		t.Fatal(err)
	}
	j, err := openPartLog(dir, "a", false)
	if err != nil {
		t.Fatal(err)
	}
	defer j.close()
	line := strings.Repeat("x", longestLine)
	for range 3 * maxLogBytes / longestLine {
		j.write(line)
	}
	for _, path := range []string{j.path, j.path + ".1"} {
		info, err := os.Stat(path)
		if err != nil || info.Size() > maxLogBytes+2*longestLine {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	if said := j.last(); len(said) != toldLines {
		t.Errorf("%d lines are kept in mind", len(said))
	}
}
