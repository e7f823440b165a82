package main

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"meridian/kv"
	"meridian/move/mrdn"
)

type frameCommands struct {
	Encode  frameEncode  `cmd:"" help:"Put a file into one MRDN frame, written to standard output."`
	Inspect frameInspect `cmd:"" help:"List the frames of a file or stream."`
	Verify  frameVerify  `cmd:"" help:"Check every frame of a file or stream."`
}

// frameInput is the part that all three share.
type frameInput struct {
	File    string `arg:"" optional:"" default:"-" help:"File to read; - for standard input."`
	MaxBody uint32 `default:"${maxbody}" placeholder:"BYTES" help:"Refuse bodies longer than this (default ${maxbody})."`
}

func (f frameInput) open(io *stdio) (io.Reader, func() error, error) {
	if f.File == "-" {
		return io.in, func() error { return nil }, nil
	}
	file, err := os.Open(f.File)
	if err != nil {
		return nil, nil, unopened(err)
	}
	return file, file.Close, nil
}

func (f frameInput) name() string {
	if f.File == "-" {
		return "standard input"
	}
	return f.File
}

type frameEncode struct {
	Tier string `required:"" enum:"think_complete,think_active,output_critical" help:"What the body is: ${enum}."`
	frameInput
	Output string `short:"o" placeholder:"FILE" help:"Write to this file instead of standard output, which - names too."`
}

func (c *frameEncode) Run(std *stdio) error {
	tier, err := kv.ParseTier(c.Tier)
	if err != nil {
		return err
	}
	toFile := c.Output != "" && c.Output != "-"
	if !toFile && std.terminal {
		return invalid("pipe it, or name a file with --output", "a frame is binary and would garble the terminal")
	}
	r, closeInput, err := c.open(std)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(io.LimitReader(r, int64(c.MaxBody)+1))
	if err := errors.Join(err, closeInput()); err != nil {
		return err
	}
	if len(body) > int(c.MaxBody) {
		return fmt.Errorf("%w: %s has more than %d bytes", mrdn.ErrTooLarge, c.name(), c.MaxBody)
	}
	if !toFile {
		return mrdn.NewWriter(std.out).Write(tier, body)
	}
	err = writeAtomic(c.Output, func(w io.Writer) error { return mrdn.NewWriter(w).Write(tier, body) })
	return unwritable(c.Output, err)
}

type frameRow struct {
	Offset    int64  `json:"offset"`
	Version   int    `json:"version"`
	Tier      string `json:"tier"`
	BodyBytes uint32 `json:"body_bytes"`
	Checksum  string `json:"checksum"`
	OK        bool   `json:"ok"`
}

// frameError is the first thing that is wrong with a stream of frames.
type frameError struct {
	Verdict string `json:"verdict"` // a word of docs/wire.md, or "io"
	Offset  int64  `json:"offset"`  // of the frame
	Message string `json:"message"`
	err     error
}

func newFrameError(offset int64, err error) error {
	return &frameError{Verdict: cmp.Or(mrdn.Verdict(err), "io"), Offset: offset, Message: err.Error(), err: err}
}

func (e *frameError) Error() string { return e.Message }
func (e *frameError) Unwrap() error { return e.err }

// eachFrame calls visit with every frame, also with those whose checksum is
// wrong, and returns the first *frameError. No frame at all is an error too: the
// user who checks a file expects something in it.
func (f frameInput) eachFrame(std *stdio, visit func(frameRow)) error {
	r, closeInput, err := f.open(std)
	if err != nil {
		return newFrameError(0, err)
	}
	defer closeInput()
	var first error
	reader := mrdn.NewReader(r, f.MaxBody)
	for n := 0; ; n++ {
		offset := reader.Offset()
		frame, err := reader.Next()
		switch {
		case errors.Is(err, io.EOF) && n == 0:
			return newFrameError(0, fmt.Errorf("%s: %w: it is empty", f.name(), mrdn.ErrTruncated))
		case errors.Is(err, io.EOF):
			return first
		case err != nil && first == nil:
			first = newFrameError(offset, fmt.Errorf("%s: frame %d at byte %d: %w", f.name(), n, offset, err))
		}
		if err != nil && !errors.Is(err, mrdn.ErrChecksum) {
			return first
		}
		visit(frameRow{
			Offset: offset, Version: mrdn.Version, Tier: frame.Tier.String(), BodyBytes: frame.BodyLen,
			Checksum: hex.EncodeToString(frame.Checksum[:]), OK: err == nil,
		})
	}
}

type frameInspect struct {
	frameInput
	JSON bool `help:"Print one JSON object."`
}

func (c *frameInspect) Run(std *stdio) error {
	inspected := struct {
		Frames []frameRow `json:"frames"`
		Error  error      `json:"error,omitempty"`
	}{Frames: []frameRow{}}
	inspected.Error = c.eachFrame(std, func(row frameRow) { inspected.Frames = append(inspected.Frames, row) })
	if c.JSON {
		return errors.Join(std.writeJSON(inspected), inspected.Error)
	}
	return errors.Join(printRows(std, inspected.Frames), inspected.Error)
}

func printRows(std *stdio, rows []frameRow) error {
	if len(rows) == 0 {
		return nil
	}
	table := newTable(std.out, "OFFSET\tTIER\tBODY BYTES\tBLAKE3-128\tCHECKSUM")
	for _, row := range rows {
		verdict := "ok"
		if !row.OK {
			verdict = "WRONG"
		}
		fmt.Fprintf(table, "%d\t%s\t%d\t%s\t%s\n", row.Offset, row.Tier, row.BodyBytes, row.Checksum, verdict)
	}
	return table.Flush()
}

type frameVerify struct {
	frameInput
	JSON bool `help:"Print one JSON object."`
}

func (c *frameVerify) Run(std *stdio) error {
	var summary struct {
		Frames    int   `json:"frames"`
		Bad       int   `json:"bad"`
		BodyBytes int64 `json:"body_bytes"`
		OK        bool  `json:"ok"`
		Error     error `json:"error,omitempty"`
	}
	summary.Error = c.eachFrame(std, func(row frameRow) {
		summary.Frames++
		summary.BodyBytes += int64(row.BodyBytes)
		if !row.OK {
			summary.Bad++
		}
	})
	summary.OK = summary.Error == nil
	switch {
	case c.JSON:
		return errors.Join(std.writeJSON(summary), summary.Error)
	case summary.OK:
		fmt.Fprintf(std.out, "%s: all checksums match (frames: %d, body bytes: %d)\n", c.name(), summary.Frames, summary.BodyBytes)
	}
	return summary.Error
}
