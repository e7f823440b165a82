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
	var path strings.Builder
	for i, s := range spots {
		fmt.Fprintf(&path, "%s%.1f,%.1f", move(i), c.px(s.x), c.py(s.y))
	}
	fmt.Fprintf(&c.b, `<path class="line s%d" d="%s"/>`+"\n", style, path.String())
	if !marked {
		return
	}
	for _, s := range spots {
		x := c.px(s.x)
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

// marks are shapes around the origin, one to a style.
var marks = [][][2]float64{
	polygon(16, 0),                       // disc
	polygon(4, math.Pi/4),                // square
	polygon(3, -math.Pi/2),               // triangle
	polygon(4, 0),                        // diamond
	polygon(3, math.Pi/2),                // triangle upside down
	polygon(6, 0),                        // hexagon
	{{-4, -1}, {4, -1}, {4, 1}, {-4, 1}}, // dash
}

func polygon(corners int, turn float64) [][2]float64 {
	shape := make([][2]float64, corners)
	for i := range shape {
		angle := turn + 2*math.Pi*float64(i)/float64(corners)
		shape[i] = [2]float64{4.5 * math.Cos(angle), 4.5 * math.Sin(angle)}
	}
	return shape
}

func mark(style int, x, y float64) string {
	var b strings.Builder
	for i, corner := range marks[style%len(marks)] {
		fmt.Fprintf(&b, "%s%.1f,%.1f", move(i), x+corner[0], y+corner[1])
	}
	return b.String() + "Z"
}

// band draws what lies between two lines, as one part of a stack.
func (c *chart) band(class, name string, step float64, below, above []float64) {
	var b strings.Builder
	for i := range above {
		fmt.Fprintf(&b, "%s%.1f,%.1f", move(i), c.px(float64(i)*step), c.py(above[i]))
	}
	for i := len(below) - 1; i >= 0; i-- {
		fmt.Fprintf(&b, "L%.1f,%.1f", c.px(float64(i)*step), c.py(below[i]))
	}
	fmt.Fprintf(&c.b, `<path class="band %s" d="%sZ"><title>%s</title></path>`+"\n", class, b.String(), html.EscapeString(name))
}

func (c *chart) done() string {
	c.b.WriteString("</svg>\n")
	return c.b.String()
}
