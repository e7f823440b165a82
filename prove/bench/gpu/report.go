package gpu

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"meridian/prove/bench"
)

// Report is what a run found, in GB/s.
type Report struct {
	Device string
	// Memcpy is cuMemcpyAsync within the device, in one piece; PerBlock the same, a call
	// for each block of 16 KiB. ToHost and FromHost are to and from pinned memory.
	Memcpy, PerBlock, ToHost, FromHost float64
	// OneBlockUs is the median time of one block of 16 KiB from post to done.
	OneBlockUs float64
	Rows       []Row
	Matmuls    []Matmul
	// Absent contenders, and why.
	Absent []bench.Absence

	options Options
	date    time.Time
}

// Row is one line of the table.
type Row struct {
	Case
	bench.Figure
}

// limit is what CUDA's own copy reaches on the way of a row.
func (r *Report) limit(c Case) (name string, gbps float64) {
	switch {
	case c.Fabric != "host":
		return "", 0
	case c.Local == c.Remote:
		return "memcpy", r.Memcpy
	case c.Op == "read":
		return "memcpy from the host", r.FromHost
	}
	return "memcpy to the host", r.ToHost
}

// against is how often a contender's figure goes into a row of ours, where it has the
// same to do; 0 where it has not. Contenders do not care how blocks lie.
func (r *Report) against(p contender, c Case) float64 {
	if c.Shape == Heads || !slices.Contains(p.fabrics, c.Fabric) {
		return 0
	}
	for _, row := range r.Rows {
		if row.Fabric == p.name && row.Op == c.Op && row.Block == c.Block && row.Local == c.Local && row.Remote == c.Remote {
			return row.Median
		}
	}
	return 0
}

// rows is the report as rows, CUDA's own first.
func (r *Report) rows() (all []map[string]any) {
	own := func(name string, gbps float64) {
		all = append(all, map[string]any{"fabric": name, "device": r.Device, "gbps": gbps})
	}
	own("memcpy", r.Memcpy)
	own("memcpy per block of 16KiB", r.PerBlock)
	own("memcpy to the host", r.ToHost)
	own("memcpy from the host", r.FromHost)
	for _, row := range r.Rows {
		line := map[string]any{
			"fabric": row.Fabric, "op": row.Op, "local": row.Local, "remote": row.Remote, "block": row.Block, "shape": row.Shape, "checked": row.Checked,
			"device": r.Device, "gbps": row.Median, "min": row.Min, "max": row.Max,
		}
		if name, gbps := r.limit(row.Case); gbps > 0 {
			line["beside"], line["ratio"] = name, bench.Rounded(row.Median/gbps)
		}
		for _, p := range contenders {
			if theirs := r.against(p, row.Case); theirs > 0 {
				line["times "+p.name] = bench.Rounded(row.Median / theirs)
			}
		}
		all = append(all, line)
	}
	for _, m := range r.Matmuls {
		all = append(all, map[string]any{"matmul_beside": m.Beside, "device": r.Device, "gbps": m.Gbps, "tflops": m.Tflops, "loss": m.Loss})
	}
	for _, a := range r.Absent {
		all = append(all, map[string]any{"fabric": a.Peer, "device": r.Device, "absent": a.Why})
	}
	return append(all, map[string]any{"fabric": "host", "op": "read", "block": "16KiB", "blocks": 1, "device": r.Device, "post_to_done_us": bench.Rounded(r.OneBlockUs)})
}

// WriteJSON writes the rows, one a line.
func (r *Report) WriteJSON(w io.Writer) error {
	lines := json.NewEncoder(w)
	for _, row := range r.rows() {
		row["date"], row["version"] = r.date.UTC().Format(time.RFC3339), r.options.Version
		if err := lines.Encode(row); err != nil {
			return err
		}
	}
	return nil
}

// WriteText writes a table.
func (r *Report) WriteText(w io.Writer) error {
	note := fmt.Sprintf("%s; memcpy %.0f GB/s, a call for each 16 KiB %.1f, to the host %.1f, from it %.1f; one block of 16 KiB %.1f µs from post to done\n\n",
		r.Device, r.Memcpy, r.PerBlock, r.ToHost, r.FromHost, r.OneBlockUs)
	head := "fabric\top\tlocal\tremote\tblock\tshape\tchecked\tGB/s\tof CUDA's own copy\t× NIXL\t× torch"
	table := bench.Table(head, r.Rows, func(row *Row) string {
		ratio := ""
		if _, gbps := r.limit(row.Case); gbps > 0 {
			ratio = fmt.Sprintf("%.2f", row.Median/gbps)
		}
		times := map[string]string{}
		for _, p := range contenders {
			if theirs := r.against(p, row.Case); theirs > 0 {
				times[p.driver] = fmt.Sprintf("%.1f", row.Median/theirs)
			}
		}
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%v\t%v\t%s\t%s\t%s", row.Fabric, row.Op, row.Local, row.Remote, row.Block, row.Shape, row.Checked, row.Figure, ratio,
			times["nixl_gpu.py"], times["torch_gpu.py"])
	})
	return bench.Write(w, note, table, r.besideText())
}

// besideText is what a loop of matrix products there loses, and which peers are absent.
func (r *Report) besideText() (text string) {
	if len(r.Matmuls) > 0 {
		text = "\n" + bench.Table("a matmul loop beside\tmoved GB/s\tTFLOP/s\tlost", r.Matmuls, func(m *Matmul) string {
			return fmt.Sprintf("%s\t%.1f\t%.1f\t%.1f %%", m.Beside, m.Gbps, m.Tflops, 100*m.Loss)
		})
	}
	for _, a := range r.Absent {
		text += a.String() + "\n"
	}
	return text
}
