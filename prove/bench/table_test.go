package bench

import (
	"strings"
	"testing"
	"time"
)

func TestDigits(t *testing.T) {
	for want, got := range map[string]string{
		"0": Digits(0, 3), "0.0123": Digits(0.0123, 3), "99.9": Digits(99.9, 3), "100": Digits(100.2, 3), "123457": Digits(123456.7, 3), "999.5": Digits(999.5, 4), "1000": Digits(1000.4, 4),
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if got := (Score{2, 1, 3}).In(2); got != "2.00 [1.00–3.00]" {
		t.Error(got)
	}
}

type besideRow struct {
	what  string
	ratio map[string]*float64
}

func TestReportText(t *testing.T) {
	h := Head{Version: "1", Date: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Others: 0.5}
	for range 2 {
		h.Miss(Absence{Peer: "nixl", Why: "not there", Fix: "make peers"})
	}
	rows := []besideRow{{"a", map[string]*float64{"redis": nil}}, {"long", map[string]*float64{"redis": new(2.0)}}}
	peers := Beside([]string{"nixl", "redis"}, rows, func(r *besideRow) map[string]*float64 { return r.ratio })
	var b strings.Builder
	if err := Write(&b, h.Text("a line"), Table("WHAT"+peers.Heads()+"\tEND", rows, func(r *besideRow) string {
		return r.what + peers.Cells(r.ratio, func(name string, ratio float64) string { return name + " " + Digits(ratio, 2) }) + "\t!"
	})); err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(b.String(), "2026-01-02 03:04 UTC\n"+Machine()+"\n")
	want := "a line\n" + h.Absent[0].String() + "\nothers used 0.5 cores meanwhile: the more, the less the figures say\n" +
		"WHAT  REDIS    END\na     –        !\nlong  redis 2  !\n"
	if rest != want {
		t.Errorf("%q\nwant %q", rest, want)
	}
}
