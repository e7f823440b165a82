package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"meridian/run/cell"
	"meridian/run/cell/demo"
)

var displayStory = []cell.Event{
	{Part: "directory", State: cell.Waiting},
	{Part: "directory", State: cell.Ready, Took: 240 * time.Millisecond},
	{Part: "prefill-0", State: cell.Starting},
	{Part: "prefill-0", State: cell.Ready, Took: time.Second, Detail: "http://127.0.0.1:1"},
}

func TestStartDisplayOnATerminal(t *testing.T) {
	var out bytes.Buffer
	b := newStartDisplay(&stdio{out: &out, terminal: true}, false)
	b.width = 40
	b.show(displayStory[0])
	b.show(cell.Event{Part: "gateway", State: cell.Waiting, Detail: "8080 is taken"})
	for _, e := range displayStory[1:] {
		b.show(e)
	}
	// Each part has one line, drawn over what it said before; notes stay.
	ready := "  directory      ready      0.24 s\n"
	want := "  directory      waiting\n" +
		"\x1b[1A\x1b[J8080 is taken\n  directory      waiting\n" +
		"\x1b[1A\x1b[J" + ready +
		"\x1b[1A\x1b[J" + ready + "  prefill-0      starting\n" +
		"\x1b[2A\x1b[J" + ready + "  prefill-0      ready      1.00 s  htt…\n"
	if out.String() != want {
		t.Errorf("%q\nwant\n%q", out.String(), want)
	}
}

func TestStartDisplayOnPaper(t *testing.T) {
	var out, beside bytes.Buffer
	b := newStartDisplay(&stdio{out: &out, err: &beside}, false)
	for _, e := range displayStory {
		b.show(e)
	}
	b.started(1300 * time.Millisecond)
	b.show(cell.Event{Part: "prefill-0", State: cell.Pausing, Detail: "ended: signal: killed; starts again in 250ms"})
	b.stage(demo.Stage{Name: "through the gateway", Done: 1, Total: 2})
	b.stage(demo.Stage{Name: "through the gateway", Done: 2, Total: 2})
	b.quiet()
	b.show(cell.Event{Part: "gateway", State: cell.Stopped})
	want := "  directory      ready      0.24 s\n" +
		"  prefill-0      ready      1.00 s  http://127.0.0.1:1\n" +
		"the cell is ready, after 1.3 s\n" +
		"  prefill-0      pausing            ended: signal: killed; starts again in 250ms\n" +
		"2 prompts through the gateway\n"
	if out.String() != want || beside.Len() > 0 {
		t.Errorf("%s\nwant\n%s", out.String(), want)
	}
	// Where standard output is for a program, people read beside it.
	out.Reset()
	newStartDisplay(&stdio{out: &out, err: &beside, terminal: true}, true).show(displayStory[1])
	if out.Len() > 0 || !strings.Contains(beside.String(), "directory") || strings.Contains(beside.String(), "\x1b") {
		t.Errorf("%q, %q", out.String(), beside.String())
	}
}
