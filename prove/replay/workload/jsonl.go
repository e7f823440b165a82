package workload

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
)

// Schema names the format of a file of requests, in its first line.
const Schema = "meridian.workload/1"

const (
	maxTenants = 1 << 16
	// Numbers in a file are whole in every reader of JSON.
	maxNumber = 1<<53 - 1
	maxLabel  = 1 << 10
)

// Header is the first line of a file of requests.
type Header struct {
	Schema string `json:"schema"`
	// Label says to people what it is; Licence whose terms hold.
	Label   string `json:"label,omitempty"`
	Licence string `json:"licence,omitempty"`
	// Synthetic: made up, or made from more than one source.
	Synthetic bool `json:"synthetic,omitempty"`
	// PrefixTokens is how many tokens of the prompt each number in prefix
	// stands for; 0 where requests have none.
	PrefixTokens int32 `json:"prefix_tokens,omitempty"`
}

func (h *Header) check() error {
	switch {
	case h.Schema != Schema:
		return fmt.Errorf("schema is %.40q, not %q", h.Schema, Schema)
	case h.PrefixTokens < 0 || h.PrefixTokens > maxTokens:
		return fmt.Errorf("prefix_tokens is %d, not from 0 to %d", h.PrefixTokens, maxTokens)
	case len(h.Label) > maxLabel || len(h.Licence) > maxLabel:
		return fmt.Errorf("label or licence is longer than %d bytes", maxLabel)
	}
	return nil
}

// openFile opens a file of requests, or one of Mooncake's traces, which has no header.
func openFile(o opening, name string) (Source, Info, error) {
	is, err := isMooncake(o.data, name)
	if err != nil {
		return nil, Info{}, err
	}
	if is {
		info := Info{Label: "Mooncake's trace " + name + ": arrivals, lengths and prefixes as recorded; no thoughts", Licence: "Apache-2.0", Tenants: 1}
		return openRecorded(o, name, func(*Info) parser { return mooncakeParser() }, info)
	}
	return openRecorded(o, name, fileParser, Info{Tenants: 1})
}

// fileParser reads a file of requests, and its header into info.
func fileParser(info *Info) parser {
	var header Header
	var at, prompt, think, output, tenant, converged uint64
	var prefix []uint64
	fields := []field{
		{name: "at_us", highest: maxAtMs * 1000, number: &at, needed: true},
		{name: "prompt", highest: maxTokens, number: &prompt, needed: true},
		{name: "think", highest: maxTokens, number: &think},
		{name: "output", highest: maxTokens, number: &output, needed: true},
		{name: "tenant", highest: maxTenants - 1, number: &tenant},
		{name: "converged", highest: maxTokens, number: &converged},
		{name: "prefix", highest: maxNumber, list: &prefix},
	}
	return func(line []byte, number int, r *Request) (bool, error) {
		if number == 1 {
			if err := parseHeader(line, &header); err != nil {
				return false, fmt.Errorf(`%w; the first line of a workload reads {"schema":%q}`, err, Schema)
			}
			info.Label, info.Licence, info.Synthetic = header.Label, header.Licence, header.Synthetic
			return false, nil
		}
		think, tenant, converged, prefix = 0, 0, 0, nil
		if err := parseObject(line, fields); err != nil {
			return false, err
		}
		*r = Request{
			At: time.Duration(at) * time.Microsecond, Prompt: int32(prompt), Think: int32(think), Output: int32(output),
			Tenant: int32(tenant), Converged: int32(converged), Prefix: prefix, PrefixTokens: header.PrefixTokens,
		}
		return true, r.check()
	}
}

func parseHeader(line []byte, h *Header) error {
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(h); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more after the header")
	}
	return h.check()
}

// check holds a request to what a file may say.
func (r *Request) check() error {
	switch {
	case r.At < 0 || r.At > maxAtMs*time.Millisecond:
		return fmt.Errorf("arrives at %v", r.At)
	case r.Prompt < 1 || r.Prompt > maxTokens:
		return fmt.Errorf("prompt is %d, not from 1 to %d", r.Prompt, maxTokens)
	case r.Output < 1 || r.Output > maxTokens:
		return fmt.Errorf("output is %d, not from 1 to %d", r.Output, maxTokens)
	case r.Think < 0 || r.Think > maxTokens:
		return fmt.Errorf("think is %d, not from 0 to %d", r.Think, maxTokens)
	case r.Converged < 0 || r.Converged > r.Think:
		return fmt.Errorf("converged is %d, not from 0 to think, %d", r.Converged, r.Think)
	case r.Tenant < 0 || r.Tenant >= maxTenants:
		return fmt.Errorf("tenant is %d, not from 0 to %d", r.Tenant, maxTenants-1)
	case len(r.Prefix) > 0 && r.PrefixTokens == 0:
		return errors.New("prefix needs prefix_tokens in the first line")
	}
	return checkPrefix(r)
}

// Writer writes a file of requests.
type Writer struct {
	out    *bufio.Writer
	header Header
	last   time.Duration
	line   []byte
}

// NewWriter begins a file with its header, whose schema it sets.
func NewWriter(w io.Writer, h Header) (*Writer, error) {
	h.Schema = Schema
	if err := h.check(); err != nil {
		return nil, fmt.Errorf("workload header: %w", err)
	}
	first, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	out := bufio.NewWriter(w)
	_, err = out.Write(append(first, '\n'))
	return &Writer{out: out, header: h}, err
}

// Write adds a request, which may not arrive before the one added last. The
// numbers of its prefix are cut to the 53 bits that every reader of JSON keeps.
func (w *Writer) Write(r Request) error {
	if err := r.check(); err != nil {
		return fmt.Errorf("workload request: %w", err)
	}
	switch {
	case r.At < w.last:
		return fmt.Errorf("workload request: arrives at %v, before the one at %v", r.At, w.last)
	case len(r.Prefix) > 0 && r.PrefixTokens != w.header.PrefixTokens:
		return fmt.Errorf("workload request: blocks of %d tokens, and the header says %d", r.PrefixTokens, w.header.PrefixTokens)
	}
	w.last = r.At
	line := append(w.line[:0], `{"at_us":`...)
	line = strconv.AppendInt(line, r.At.Microseconds(), 10)
	for _, member := range []struct {
		name  string
		value int32
		write bool
	}{
		{`,"prompt":`, r.Prompt, true},
		{`,"think":`, r.Think, r.Think > 0},
		{`,"output":`, r.Output, true},
		{`,"tenant":`, r.Tenant, r.Tenant > 0},
		{`,"converged":`, r.Converged, r.Converged > 0},
	} {
		if member.write {
			line = strconv.AppendInt(append(line, member.name...), int64(member.value), 10)
		}
	}
	for i, block := range r.Prefix {
		separator := `,"prefix":[`
		if i > 0 {
			separator = ","
		}
		line = strconv.AppendUint(append(line, separator...), block&maxNumber, 10)
	}
	if len(r.Prefix) > 0 {
		line = append(line, ']')
	}
	w.line = append(line, "}\n"...)
	_, err := w.out.Write(w.line)
	return err
}

// Flush hands what was written to the file.
func (w *Writer) Flush() error { return w.out.Flush() }
