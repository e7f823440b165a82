package workload

import (
	"bufio"
	"bytes"
	"errors"
	"io/fs"
	"time"
)

const (
	mooncakeBlock = 512
	// The longest a workload may be: 10 years.
	maxAtMs = 10 * 366 * 24 * 3600 * 1000
)

func openMooncake(o opening, which string) (Source, Info, error) {
	info := Info{
		Label: "Mooncake " + which + " trace (FAST'25): arrivals, lengths and prefixes as recorded; no thoughts", Licence: "Apache-2.0",
		Synthetic: which == "synthetic", Tenants: 1,
	}
	if o.sample {
		info.Sample, info.Synthetic = true, true
		info.Label, info.Licence = "generated sample in the manner of the Mooncake "+which+" trace", ""
	}
	return openRecorded(o, "mooncake/"+which+"_trace.jsonl", func(*Info) parser { return mooncakeParser() }, info)
}

// isMooncake tells a trace of Mooncake's by its first line.
func isMooncake(data fs.FS, name string) (bool, error) {
	f, err := data.Open(name)
	if err != nil {
		return false, err
	}
	lines := bufio.NewScanner(f)
	lines.Buffer(make([]byte, 4<<10), maxLine)
	is := lines.Scan() && bytes.Contains(lines.Bytes(), []byte(`"hash_ids"`))
	return is, f.Close() // a line that cannot be read is told of when it is
}

func mooncakeParser() parser {
	var at, input, output uint64
	var blocks []uint64
	fields := []field{
		{name: "timestamp", highest: maxAtMs, number: &at, needed: true},
		{name: "input_length", highest: maxTokens, number: &input, needed: true},
		{name: "output_length", highest: maxTokens, number: &output, needed: true},
		{name: "hash_ids", highest: 1<<53 - 1, list: &blocks, needed: true},
	}
	return func(line []byte, _ int, r *Request) (bool, error) {
		if err := parseObject(line, fields); err != nil {
			return false, err
		}
		*r = Request{
			At: time.Duration(at) * time.Millisecond, Prompt: max(1, int32(input)), Output: max(1, int32(output)),
			Prefix: blocks, PrefixTokens: mooncakeBlock,
		}
		return true, checkPrefix(r)
	}
}

// checkPrefix demands that a prompt has no more blocks than tokens for them.
func checkPrefix(r *Request) error {
	if len(r.Prefix) > 0 && (len(r.Prefix)-1)*int(r.PrefixTokens) >= int(r.Prompt) {
		return errors.New("more blocks than the prompt has tokens for")
	}
	return nil
}
