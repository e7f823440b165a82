package main

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"meridian/move/agent"
	"meridian/run/cell"
	"meridian/see/ledger"
	"meridian/see/telemetry"
)

// hostile is a name that would drive a terminal: it clears the screen, sets the
// title, writes with C1 controls and from right to left.
const hostile = "a\x1b[2J\x1b]0;owned\x07b\u009b31mc\x9b1md\u202ee\x7f"

// tame tells whether a terminal only shows text.
func tame(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsAny(text, "\x00\x07\x08\r\x1b\x7f\u009b\u202e")
}

func TestPrintable(t *testing.T) {
	for given, want := range map[string]string{
		"plain, naïve, 試験 👩‍🚀\n\tline": "plain, naïve, 試験 👩‍🚀\n\tline",
		"\x1b[1;31mred\x1b[0m":         "red",
		"over\rwritten\b":              "over\ufffdwritten\ufffd",
	} {
		if got := printable(given); got != want {
			t.Errorf("%q is shown as %q, want %q", given, got, want)
		}
	}
	if got := printable(hostile); !tame(got) || !strings.Contains(got, "owned") {
		t.Errorf("%q", got)
	}
	if got := oneLine("two\nlines\tand " + strings.Repeat("é", 1<<20)); !strings.HasPrefix(got, "two lines and éé") || utf8.RuneCountInString(got) != longestName || !utf8.ValidString(got) {
		t.Errorf("%q", got)
	}
}

// What others wrote reaches people by these ways.
func TestTextsDoNotDriveTheTerminal(t *testing.T) {
	var out strings.Builder
	std := &stdio{out: &out, err: &out}
	reportFailure(&out, telemetry.LogOptions{}, &cell.EndError{Part: "decode-0", How: "ended", Said: []string{hostile}})
	out.WriteString(logLine(cell.Line{Part: "gateway", Text: hostile}, false))
	s := &cell.Status{Parts: []cell.PartStatus{{PartRecord: cell.PartRecord{Name: "decode-0", URL: "http://" + hostile}, Problem: hostile}}}
	if err := (&statusCommand{}).table(std, s); err != nil {
		t.Error(err)
	}
	known := listing{requests: []*ledger.Record{{ID: "1", Model: hostile, Outcome: hostile}}, transfers: []agent.Record{{Peer: hostile, Fabric: hostile}}}
	if err := known.table(&out); err != nil {
		t.Error(err)
	}
	if err := (&explanation{request: &ledger.Record{Model: hostile}}).tell(std, false); err != nil {
		t.Error(err)
	}
	r := agent.AgentRecord{Name: hostile, Incarnation: hostile, Fabrics: map[string]string{"tcp": hostile, hostile: ""}}
	if err := (&peersCommand{}).line(std, "came", r); err != nil {
		t.Error(err)
	}
	if err := peerTable(&out, []agent.AgentRecord{r}, nil); err != nil {
		t.Error(err)
	}
	if err := memberTable(&out, []member{{Kind: kindEngine, Name: hostile, Role: hostile, Agent: hostile, Host: hostile, URL: hostile, Problem: hostile}}); err != nil {
		t.Error(err)
	}
	(&startDisplay{w: &out}).show(cell.Event{Part: "decode-0", State: cell.Pausing, Detail: hostile})
	for _, err := range []error{nil, errors.New(hostile)} {
		if err := (&recvCommand{}).tell(std, fileMessage{Name: hostile}, hostile, err); err != nil {
			t.Error(err)
		}
	}
	(&conversation{err: &out}).complain(&cell.EndError{Part: hostile})
	if text := out.String(); !tame(text) || strings.Count(text, "owned") < 12 {
		t.Errorf("%q", text)
	}
}

func TestFileNamesAreChecked(t *testing.T) {
	for _, name := range []string{"", ".", "..", ".hidden", "a/b", "../escape", hostile, "new\nline", strings.Repeat("x", 300)} {
		if err := checkFileName(name); err == nil || !tame(err.Error()) || len(err.Error()) > 600 {
			t.Errorf("%.40q: %v", name, err)
		}
	}
	for _, name := range []string{"a", "big.bin", "naïve name (2).txt"} {
		if err := checkFileName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}
