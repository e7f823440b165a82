package serving

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"meridian/prove/bench"
)

func TestMovesOptions(t *testing.T) {
	good := MovesOptions{Model: "tiny", Prompts: []int{64}, Answer: 32, Rounds: 1}
	if err := good.validate(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*MovesOptions){
		"no rounds": func(o *MovesOptions) { o.Rounds = 0 }, "no prompts": func(o *MovesOptions) { o.Prompts = nil }, "short": func(o *MovesOptions) { o.Answer = 2 },
		"too long": func(o *MovesOptions) { o.Prompts = []int{maxMoveTokens} }, "none": func(o *MovesOptions) { o.Prompts = []int{0} },
	} {
		o := good
		change(&o)
		if err := o.validate(); !errors.Is(err, bench.ErrOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMovesRow(t *testing.T) {
	list := func(ms ...int) (all []time.Duration) {
		for _, n := range ms {
			all = append(all, time.Duration(n)*time.Millisecond)
		}
		return all
	}
	row := movesRow(512, map[string][]time.Duration{movesStay: list(2, 1, 3), movesMove: list(10, 12, 40), movesResume: list(96, 90, 200)})
	if row.Moves != (MovesWait{12, 40}) || row.Resumes != (MovesWait{96, 200}) || row.Ratio != 0.125 {
		t.Errorf("got %+v", row)
	}
	var text strings.Builder
	report := &MovesReport{Rows: []MovesRow{row}, options: MovesOptions{Rounds: 3}}
	if err := report.WriteText(&text); err != nil || !strings.Contains(text.String(), "512     2.0 / 3.0  12.0 / 40.0  96.0 / 200.0  0.12") {
		t.Errorf("%v: %s", err, text.String())
	}
}

// A wire passes on, ends what is there when it is cut, and takes what comes after that.
func TestWire(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		for {
			conn, err := echo.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	w, err := openWire(echo.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	for range 2 {
		conn, err := net.Dial("tcp", w.address())
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		word := make([]byte, 4)
		if _, err := conn.Write([]byte("word")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, word); err != nil || string(word) != "word" {
			t.Fatalf("%q, %v", word, err)
		}
		w.cut()
		if _, err := conn.Read(word); err == nil {
			t.Error("what was cut goes on")
		}
		_ = conn.Close()
	}
}
