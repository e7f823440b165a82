package workload

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"unicode/utf8"
)

// Lengths of texts are estimated, because a workload is of no one model's
// tokens: charactersPerToken is the usual figure for English.
const charactersPerToken = 4

// maxText bounds one conversation or one problem.
const maxText = 8 << 20

// texts are prompts from a local file, in its order, which arrive by chance and
// begin again at its end.
type texts struct {
	data     fs.FS
	name     string
	begin    func(io.Reader) func() (Request, error)
	file     fs.File
	next     func() (Request, error)
	arrivals *rand.Rand
	lengths  *rand.Rand
	think    bool
	rate     float64
	at, end  float64
	err      error
}

// openShareGPT reads conversations: the first thing said, and the answer to it.
func openShareGPT(o opening) (Source, Info, error) {
	info := Info{Label: "ShareGPT prompts and answers, lengths estimated from characters, Poisson arrivals"}
	return openTexts(o, "sharegpt.json", shareGPT, info)
}

// openMath500 reads problems and their solutions. The file has no thoughts:
// they are the synthetic mix's.
func openMath500(o opening) (Source, Info, error) {
	info := Info{Label: "MATH-500 problems and solutions, lengths estimated from characters, thoughts and arrivals of the synthetic mix"}
	return openTexts(o, "math500.jsonl", math500, info)
}

func openTexts(o opening, name string, begin func(io.Reader) func() (Request, error), info Info) (Source, Info, error) {
	mix, err := o.Synthetic.defaulted()
	if err != nil {
		return nil, Info{}, err
	}
	if o.sample {
		return nil, Info{}, fmt.Errorf("%w: it has no sample: put %s into a folder, and name that with --data", ErrOptions, name)
	}
	if o.Duration == 0 {
		o.Duration = mixDuration
	}
	t := &texts{
		data: o.data, name: name, begin: begin, think: name == "math500.jsonl", rate: mix.Rate * o.Scale, end: o.Duration.Seconds(),
		arrivals: stream(o.Seed, streamArrivals, 0, 0), lengths: stream(o.Seed, streamLengths, 0, 0),
	}
	info.Synthetic, info.Duration, info.Rate, info.Tenants = true, o.Duration, t.rate, 1
	if err := t.describe(&info); err != nil {
		return nil, Info{}, err
	}
	return t, info, nil
}

// describe reads the file once.
func (t *texts) describe(info *Info) error {
	if err := t.reopen(); err != nil {
		return err
	}
	defer t.Close()
	var n, prompt, output float64
	for {
		r, err := t.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("%s: entry %d: %w", t.name, int(n)+1, err)
		}
		n++
		prompt, output = prompt+float64(r.Prompt), output+float64(r.Output)
	}
	if n == 0 {
		return fmt.Errorf("%s: no prompts", t.name)
	}
	info.MeanPrompt, info.MeanOutput = prompt/n, output/n
	if t.think {
		info.MeanThink = mixThink.mean()
	}
	return nil
}

func (t *texts) reopen() error {
	err := t.Close()
	if err == nil {
		t.file, err = t.data.Open(t.name)
	}
	if err == nil {
		t.next = t.begin(t.file)
	}
	return err
}

// Next returns the next request.
func (t *texts) Next() (Request, bool) {
	t.at += t.arrivals.ExpFloat64() / t.rate
	if t.at >= t.end || t.err != nil {
		t.err = errors.Join(t.err, t.Close())
		return Request{}, false
	}
	var r Request
	err := io.EOF
	if t.file != nil {
		r, err = t.next()
	}
	if errors.Is(err, io.EOF) {
		if err = t.reopen(); err == nil {
			r, err = t.next()
		}
	}
	if err != nil {
		t.err = fmt.Errorf("%s: %w", t.name, err)
		return Request{}, false
	}
	r.At = seconds(t.at)
	if t.think {
		r.Think = mixThink.draw(t.lengths)
	}
	return r, true
}

// Err is what was wrong with the file.
func (t *texts) Err() error { return t.err }

// Close closes the file.
func (t *texts) Close() error {
	if t.file == nil {
		return nil
	}
	f := t.file
	t.file = nil
	return f.Close()
}

func estimate(text string) int32 {
	return int32(max(1, min(maxTokens, utf8.RuneCountInString(text)/charactersPerToken)))
}

// shareGPT reads one large list of conversations, one at a time.
func shareGPT(r io.Reader) func() (Request, error) {
	bounded := &io.LimitedReader{R: r, N: maxText}
	decoder := json.NewDecoder(bounded)
	opened := false
	return func() (Request, error) {
		if !opened {
			if t, err := decoder.Token(); err != nil || t != json.Delim('[') {
				return Request{}, errors.New("the file is not a list of conversations")
			}
			opened = true
		}
		for decoder.More() {
			var c struct {
				Conversations []struct{ From, Value string }
			}
			bounded.N = maxText
			if err := decoder.Decode(&c); err != nil {
				if bounded.N == 0 {
					err = fmt.Errorf("longer than %d bytes", maxText)
				}
				return Request{}, notEnd(err)
			}
			said := c.Conversations
			if len(said) >= 2 && said[0].From == "human" && said[1].From == "gpt" {
				return Request{Prompt: estimate(said[0].Value), Output: estimate(said[1].Value)}, nil
			}
		}
		if _, err := decoder.Token(); err != nil {
			return Request{}, fmt.Errorf("the list does not end: %w", notEnd(err))
		}
		return Request{}, io.EOF
	}
}

// notEnd keeps a file that ends in the middle from passing for one that ends.
func notEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// math500 reads a problem a line.
func math500(r io.Reader) func() (Request, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 64<<10), maxText)
	return func() (Request, error) {
		if !lines.Scan() {
			if err := lines.Err(); err != nil {
				return Request{}, err
			}
			return Request{}, io.EOF
		}
		var p struct{ Problem, Solution string }
		if err := json.NewDecoder(bytes.NewReader(lines.Bytes())).Decode(&p); err != nil {
			return Request{}, notEnd(err)
		}
		if p.Problem == "" || p.Solution == "" {
			return Request{}, errors.New("problem or solution is missing")
		}
		return Request{Prompt: estimate(p.Problem), Output: estimate(p.Solution)}, nil
	}
}
