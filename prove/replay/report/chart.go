package report

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// The measures of a chart; the page scales it to its column.
const (
	chartWidth  = 480
	chartHeight = 300
	leftMargin  = 58
	rightMargin = 14
	topMargin   = 30
	footMargin  = 42
)

// chart is a picture in SVG with two axes. Colours come from the page's
// classes, which have a set for light and one for dark.
type chart struct {
	b    strings.Builder
	x, y scale
	high float64 // of the whole picture
}

// newChart draws frame, grid and names.
func newChart(title, xName string, x, y scale, height float64) *chart {
	c := &chart{x: x, y: y, high: height}
	fmt.Fprintf(&c.b, `<svg class="chart" viewBox="0 0 %d %.0f" role="img" aria-label="%s">`+"\n", chartWidth, height, html.EscapeString(title))
	c.text(leftMargin, 17, "title", "start", title)
	c.axes()
	c.text(leftMargin+(chartWidth-leftMargin-rightMargin)/2, height-8, "name", "middle", xName)
	return c
}

// axes draws the grid as one path, and the labels of its lines.
func (c *chart) axes() {
	var grid, labels strings.Builder
	label := func(x, y float64, anchor, s string) {
		fmt.Fprintf(&labels, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, x, y, anchor, html.EscapeString(s))
	}
	for _, t := range c.y.ticks {
		at := c.py(t.at)
		fmt.Fprintf(&grid, "M%d,%.1fH%d", leftMargin, at, chartWidth-rightMargin)
		label(leftMargin-6, at+4, "end", t.label)
	}
	for _, t := range c.x.ticks {
		at := c.px(t.at)
		fmt.Fprintf(&grid, "M%.1f,%dV%.1f", at, topMargin, c.high-footMargin)
		anchor := "middle"
		if at > chartWidth-rightMargin-16 {
			anchor = "end" // the label would leave the picture
		}
		label(at, c.high-footMargin+16, anchor, t.label)
	}
	fmt.Fprintf(&c.b, `<path class="grid" d="%s"/><g class="tick">%s</g>`+"\n", grid.String(), labels.String())
}

func (c *chart) px(x float64) float64 {
	return leftMargin + c.x.place(x)*(chartWidth-leftMargin-rightMargin)
}

func (c *chart) py(y float64) float64 {
	return c.high - footMargin - c.y.place(y)*(c.high-footMargin-topMargin)
}

func (c *chart) text(x, y float64, class, anchor, s string) {
	fmt.Fprintf(&c.b, `<text class="%s" x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", class, x, y, anchor, html.EscapeString(s))
}

// spot is a point of a line; told is what it says when a reader points at it.
type spot struct {
	x, y, low, high float64
	told            string
}

// line draws a policy's points, their intervals, and a mark of the policy's
// own shape at each: colour is never the only difference.
func (c *chart) line(style int, spots []spot, marked bool) {
	if len(spots) == 0 {
		return
	}
	shift := 0.0
	if marked {
		shift = 2.5 * float64(style-(styles-1)/2) // intervals stand side by side, not one over the other
	}
	var path strings.Builder
	for i, s := range spots {
		fmt.Fprintf(&path, "%s%.1f,%.1f", move(i), c.px(s.x)+shift, c.py(s.y))
	}
	fmt.Fprintf(&c.b, `<path class="line s%d" d="%s"/>`+"\n", style, path.String())
	if !marked {
		return
	}
	for _, s := range spots {
		x := c.px(s.x) + shift
		if s.low < s.high {
			fmt.Fprintf(&c.b, `<line class="whisker s%d" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, style, x, x, c.py(s.low), c.py(s.high))
		}
		fmt.Fprintf(&c.b, `<path class="mark s%d" d="%s"><title>%s</title></path>`+"\n", style, mark(style, x, c.py(s.y)), html.EscapeString(s.told))
	}
}

func move(i int) string {
	if i == 0 {
		return "M"
	}
	return "L"
}

// marks are shapes of a style each: where it begins, from its middle, and how it
// goes on from there.
var marks = []string{
	polygon(10, 0),                       // disc
	polygon(4, math.Pi/4),                // square
	polygon(3, -math.Pi/2),               // triangle
	polygon(4, 0),                        // diamond
	polygon(3, math.Pi/2),                // triangle upside down
	polygon(6, 0),                        // hexagon
	"m-4,-1h8v2h-8z",                     // dash
	"m-1,-4h2v8h-2z",                     // dash upright
	"m-1,-4h2v3h3v2h-3v3h-2v-3h-3v-2h3z", // cross
}

func polygon(corners int, turn float64) string {
	var b strings.Builder
	x, y := 0.0, 0.0
	for i := range corners {
		angle := turn + 2*math.Pi*float64(i)/float64(corners)
		toX, toY := math.Round(45*math.Cos(angle))/10, math.Round(45*math.Sin(angle))/10
		fmt.Fprintf(&b, "%s%g,%g", strings.ToLower(move(i)), math.Round(10*(toX-x))/10, math.Round(10*(toY-y))/10)
		x, y = toX, toY
	}
	return b.String() + "z"
}

func mark(style int, x, y float64) string {
	return fmt.Sprintf("M%.1f,%.1f%s", x, y, marks[style%len(marks)])
}

// band draws a part of a stack: all that is below a line. Lower parts are drawn
// over it afterwards.
func (c *chart) band(class, name string, step float64, above []float64) {
	var b strings.Builder
	for i, y := range above {
		fmt.Fprintf(&b, "%s%.0f,%.0f", move(i), c.px(float64(i)*step), c.py(y))
	}
	fmt.Fprintf(&c.b, `<path class="band %s" d="%sV%.0fH%dZ"><title>%s</title></path>`+"\n", class, b.String(), c.high-footMargin, leftMargin, html.EscapeString(name))
}

func (c *chart) done() string {
	c.b.WriteString("</svg>\n")
	return c.b.String()
}
