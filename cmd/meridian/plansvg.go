package main

import (
	"bytes"
	"fmt"
	"html"
	"io"

	"meridian/move/reshard"
)

// The picture: source ranks on the left, destination ranks on the right, and
// between them a band for every flow, as wide as it is large.
const (
	pictureWidth  = 960
	boxWidth      = 260
	boxGap        = 10
	leastBox      = 40 // two lines of text
	headHeight    = 104
	footHeight    = 34
	bandsHeight   = 420 // of all bytes together, before least heights
	pictureMargin = 24
)

// box is one rank in the picture; taken is how much of its edge has bands.
type box struct{ y, height, taken float64 }

// stack lays boxes out one below the other, each as high as its share of all
// bytes, and returns where the last one ends.
func stack(amounts []int64, total int64) ([]box, float64) {
	boxes := make([]box, len(amounts))
	y := float64(headHeight)
	for i, amount := range amounts {
		height := float64(leastBox)
		if total > 0 {
			height = max(height, bandsHeight*float64(amount)/float64(total))
		}
		boxes[i] = box{y: y, height: height}
		y += height + boxGap
	}
	return boxes, y - boxGap
}

func (p *planned) draw(w io.Writer, link linkRate) error {
	total, runs, _ := p.total()
	_, sent, received := p.matrix()
	left, leftEnd := stack(sent, total)
	right, rightEnd := stack(received, total)
	height := max(leftEnd, rightEnd) + footHeight

	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %.0f" width="%d" height="%.0f" role="img">`+"\n",
		pictureWidth, height, pictureWidth, height)
	b.WriteString(pictureStyle)
	title := fmt.Sprintf("%s in %s", bytesText(total), plural(runs, "run", "runs"))
	if times := p.timeText(link); len(times) > 0 {
		title += ", " + times[0]
	}
	fmt.Fprintf(&b, "<title>%s</title>\n<rect class=\"page\" width=\"100%%\" height=\"100%%\"/>\n", html.EscapeString(title))
	label(&b, pictureMargin, 32, "title", title)
	label(&b, pictureMargin, 54, "side", fmt.Sprintf("%s, tokens %v", p.model, p.tokens))
	label(&b, pictureMargin, 90, "side", p.src.Parallelism.String()+" · "+sideShort(p.src))
	labelEnd(&b, pictureWidth-pictureMargin, 90, "side", p.dst.Parallelism.String()+" · "+sideShort(p.dst))
	p.drawBands(&b, left, right, total)
	for rank, box := range left {
		drawBox(&b, pictureMargin, box, rank, sent[rank], "sends", holds(p.src, rank))
	}
	for rank, box := range right {
		drawBox(&b, pictureWidth-pictureMargin-boxWidth, box, rank, received[rank], "receives", holds(p.dst, rank))
	}
	label(&b, pictureMargin, height-12, "foot", "plan "+p.digest.String())
	b.WriteString("</svg>\n")
	_, err := w.Write(b.Bytes())
	return err
}

func sideShort(s reshard.Side) string {
	return fmt.Sprintf("%v, blocks of %d", s.Layout, s.BlockTokens)
}

// drawBands draws the flows in the plan's order, so that the bands of a source
// leave in the order of their destinations, and those of a destination arrive in
// the order of their sources.
func (p *planned) drawBands(b *bytes.Buffer, left, right []box, total int64) {
	const x1, x2 = pictureMargin + boxWidth, pictureWidth - pictureMargin - boxWidth
	const middle = (x1 + x2) / 2.0
	for _, f := range p.flows {
		bytes := f.Bytes()
		runs, _ := f.CountRuns()
		width := bandsHeight * float64(bytes) / float64(total)
		from, to := &left[f.Src], &right[f.Dst]
		y1, y2 := from.y+from.taken, to.y+to.taken
		from.taken += width
		to.taken += width
		hue := f.Src * 360 / len(left)
		fmt.Fprintf(b, `<path class="band" fill="hsl(%d 62%% 52%%)" d="M%d %.2fC%.0f %.2f %.0f %.2f %d %.2fV%.2fC%.0f %.2f %.0f %.2f %d %.2fZ">`,
			hue, x1, y1, middle, y1, middle, y2, x2, y2, y2+width, middle, y2+width, middle, y1+width, x1, y1+width)
		fmt.Fprintf(b, "<title>%d → %d: %s in %s</title></path>\n", f.Src, f.Dst, bytesText(bytes), plural(runs, "run", "runs"))
	}
}

func drawBox(b *bytes.Buffer, x float64, at box, rank int, amount int64, verb, held string) {
	class, amountText := "box", verb+" "+bytesText(amount)
	if amount == 0 {
		class, amountText = "box idle", verb+" nothing"
	}
	fmt.Fprintf(b, `<rect class="%s" x="%.0f" y="%.2f" width="%d" height="%.2f" rx="5"/>`+"\n", class, x, at.y, boxWidth, at.height)
	middle := at.y + at.height/2
	label(b, x+12, middle-4, "rank", fmt.Sprintf("rank %d · %s", rank, amountText))
	label(b, x+12, middle+13, "held", held)
}

func label(b *bytes.Buffer, x, y float64, class, text string) {
	fmt.Fprintf(b, `<text class="%s" x="%.0f" y="%.2f">%s</text>`+"\n", class, x, y, html.EscapeString(text))
}

func labelEnd(b *bytes.Buffer, x, y float64, class, text string) {
	fmt.Fprintf(b, `<text class="%s" x="%.0f" y="%.2f" text-anchor="end">%s</text>`+"\n", class, x, y, html.EscapeString(text))
}

const pictureStyle = `<style>
.page { fill: #ffffff; }
.box { fill: #f3f4f7; stroke: #b9bec9; }
.idle { fill: none; stroke-dasharray: 4 4; }
.band { fill-opacity: 0.55; }
.band:hover { fill-opacity: 0.9; }
text { font: 13px system-ui, sans-serif; fill: #1d2129; }
.title { font-size: 16px; font-weight: 600; }
.rank { font-weight: 600; }
.held, .side, .foot { font-size: 12px; fill: #5a6272; }
.foot { font-family: ui-monospace, monospace; font-size: 11px; }
@media (prefers-color-scheme: dark) {
.page { fill: #14161b; }
.box { fill: #22262e; stroke: #474d5a; }
text { fill: #e8eaef; }
.held, .side, .foot { fill: #a2a9b8; }
}
</style>
`
