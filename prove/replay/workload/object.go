package workload

import (
	"errors"
	"fmt"
)

// field is one member of a line that is a flat JSON object of whole numbers
// and lists of them: its name, the highest number, and where the value goes.
type field struct {
	name    string
	highest uint64
	number  *uint64
	list    *[]uint64
	needed  bool
	seen    bool
}

// parseObject reads a line. It knows no more of JSON than these files have,
// refuses all else, and is a tenth of the work of a general decoder. A list
// that was read is a slice of its own.
func parseObject(line []byte, fields []field) error {
	p := text{line: line}
	for i := range fields {
		fields[i].seen = false
	}
	if !p.take('{') {
		return errors.New("does not begin with {")
	}
	for first := true; !p.take('}'); first = false {
		if !first && !p.take(',') {
			return p.problem("expected , or }")
		}
		name, err := p.name()
		if err != nil {
			return err
		}
		f := find(fields, name)
		switch {
		case f == nil:
			return fmt.Errorf("unknown member %.40q", name)
		case f.seen:
			return fmt.Errorf("%s stands twice", f.name)
		}
		f.seen = true
		if !p.take(':') {
			return p.problem("expected :")
		}
		if err := p.value(f); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	if p.space(); p.at != len(line) {
		return p.problem("more after the closing }")
	}
	for i := range fields {
		if fields[i].needed && !fields[i].seen {
			return fmt.Errorf("%s is missing", fields[i].name)
		}
	}
	return nil
}

func find(fields []field, name []byte) *field {
	for i := range fields {
		if fields[i].name == string(name) {
			return &fields[i]
		}
	}
	return nil
}

// text is a line as far as it was read.
type text struct {
	line []byte
	at   int
}

func (p *text) problem(what string) error { return fmt.Errorf("%s, at byte %d", what, p.at+1) }

func (p *text) space() {
	for p.at < len(p.line) && (p.line[p.at] == ' ' || p.line[p.at] == '\t' || p.line[p.at] == '\r') {
		p.at++
	}
}

func (p *text) take(c byte) bool {
	p.space()
	if p.at < len(p.line) && p.line[p.at] == c {
		p.at++
		return true
	}
	return false
}

func (p *text) name() ([]byte, error) {
	if !p.take('"') {
		return nil, p.problem("expected a name in quotes")
	}
	from := p.at
	for p.at < len(p.line) && p.line[p.at] != '"' {
		if p.line[p.at] == '\\' {
			return nil, p.problem("a name with a backslash")
		}
		p.at++
	}
	if p.at == len(p.line) {
		return nil, p.problem("a name without its closing quote")
	}
	p.at++
	return p.line[from : p.at-1], nil
}

func (p *text) value(f *field) error {
	if f.list == nil {
		n, err := p.number(f.highest)
		*f.number = n
		return err
	}
	if !p.take('[') {
		return p.problem("expected a list of whole numbers")
	}
	commas := 0
	for _, c := range p.line[p.at:] {
		if c == ']' {
			break
		}
		if c == ',' {
			commas++
		}
	}
	*f.list = nil
	if p.take(']') {
		return nil
	}
	list := make([]uint64, 0, commas+1)
	for {
		n, err := p.number(f.highest)
		if err != nil {
			return err
		}
		list = append(list, n)
		if p.take(']') {
			*f.list = list
			return nil
		}
		if !p.take(',') {
			return p.problem("expected , or ]")
		}
	}
}

// number reads a whole number without sign, fraction, exponent or leading
// zeros.
func (p *text) number(highest uint64) (uint64, error) {
	p.space()
	from := p.at
	var n uint64
	for p.at < len(p.line) && p.line[p.at] >= '0' && p.line[p.at] <= '9' {
		digit := uint64(p.line[p.at] - '0')
		if n > (highest-digit)/10 && n*10+digit > highest || p.at-from > 19 {
			return 0, fmt.Errorf("a number above %d, at byte %d", highest, from+1)
		}
		n = n*10 + digit
		p.at++
	}
	if p.at == from || p.line[from] == '0' && p.at > from+1 || p.at < len(p.line) && continues(p.line[p.at]) {
		return 0, fmt.Errorf("not a whole number from 0 to %d, at byte %d", highest, from+1)
	}
	return n, nil
}

// continues: the byte would make another kind of number of what was read.
func continues(c byte) bool { return c == '.' || c == 'e' || c == 'E' || c == '-' || c == '+' }
