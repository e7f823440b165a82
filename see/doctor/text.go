package doctor

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	textWidth     = 110
	commandIndent = "    "
)

const textHeader = `What this machine has, and what each thing enables for Meridian.
What is marked "Planned" is not built yet.
`

// WriteText prints the report for people: a line for each check, below it what the thing enables, and advice where
// there is something to do. Prose is wrapped; commands are left in one piece, to be copied.
func (r Report) WriteText(w io.Writer) error {
	var screen bytes.Buffer
	screen.WriteString(textHeader)

	nameWidth := 0
	for _, c := range r.Checks {
		nameWidth = max(nameWidth, utf8.RuneCountInString(c.Name))
	}
	totals := make(map[Status]int)
	for _, c := range r.Checks {
		totals[c.Status]++
		lead := fmt.Sprintf("%-8s  %-*s  ", "["+string(c.Status)+"]", nameWidth, printable(c.Name))
		indent := strings.Repeat(" ", utf8.RuneCountInString(lead))
		screen.WriteByte('\n')
		writeWrapped(&screen, lead, indent, c.Found)
		writeWrapped(&screen, indent, indent, c.Enables)
		if c.Status == StatusOK || c.Advice == "" {
			continue
		}
		for line := range strings.SplitSeq(c.Advice, "\n") {
			if strings.HasPrefix(line, commandIndent) {
				fmt.Fprintf(&screen, "%s%s\n", indent, printable(line))
			} else {
				writeWrapped(&screen, indent+"→ ", indent+"  ", line)
			}
		}
	}
	fmt.Fprintf(&screen, "\n%d checks: %d ok, %d to look at, %d absent\n",
		len(r.Checks), totals[StatusOK], totals[StatusWarn], totals[StatusAbsent])

	_, err := w.Write(screen.Bytes())
	return err
}

func writeWrapped(screen *bytes.Buffer, lead, indent, text string) {
	line := lead
	empty := true
	for word := range strings.FieldsSeq(printable(text)) {
		if !empty && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > textWidth {
			screen.WriteString(line + "\n")
			line, empty = indent, true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	screen.WriteString(strings.TrimRight(line, " ") + "\n")
}

// printable keeps what files and directories are called from steering the terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsPrint(r):
			return r
		case unicode.IsSpace(r):
			return ' '
		default:
			return '?'
		}
	}, text)
}
