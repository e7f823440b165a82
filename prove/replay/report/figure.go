package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// text writes a figure of a unit with three digits.
func (u Unit) text(x float64) string {
	switch u {
	case Seconds:
		return secondsText(x)
	case Share:
		return digits(100*x, 3) + " %"
	case Bytes:
		return scaled(x, 1024, []string{" B", " KiB", " MiB", " GiB", " TiB"})
	case PerSecond:
		return scaled(x, 1000, []string{"", "k", "M", "G"}) + "/s"
	case Count:
		return scaled(x, 1000, []string{"", "k", "M", "G"})
	}
	return digits(x, 3)
}

func secondsText(x float64) string {
	switch size := math.Abs(x); {
	case size == 0:
		return "0 s"
	case size < 1e-3:
		return digits(x*1e6, 3) + " µs"
	case size < 1:
		return digits(x*1e3, 3) + " ms"
	}
	return digits(x, 3) + " s"
}

// scaled writes x with the largest unit that is not larger.
func scaled(x, step float64, units []string) string {
	unit := 0
	for math.Abs(x) >= step && unit < len(units)-1 {
		x /= step
		unit++
	}
	return digits(x, 3) + units[unit]
}

// digits writes so many of them, and never an exponent.
func digits(x float64, count int) string {
	if x == 0 {
		return "0"
	}
	after := max(0, count-1-int(math.Floor(math.Log10(math.Abs(x)))))
	text := strconv.FormatFloat(x, 'f', min(after, 6), 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return strings.Replace(text, "-", "−", 1)
}

// withInterval writes a figure and, where there is one, its interval.
func (u Unit) withInterval(i Interval) string {
	return strings.TrimSpace(u.text(i.Mean) + " " + u.intervalText(i))
}

// intervalText writes an interval in brackets, or nothing where there is none.
func (u Unit) intervalText(i Interval) string {
	if i.Low == i.High {
		return ""
	}
	return fmt.Sprintf("[%s, %s]", u.text(i.Low), u.text(i.High))
}

// changeText writes a difference, and its interval where there is one: per cent,
// percentage points, or the metric's own unit.
func changeText(m Metric, change Interval, relative bool) (text, interval string) {
	one := func(x float64) string {
		switch {
		case relative || m.Unit == Share:
			return signed(100 * x)
		case x > 0:
			return "+" + m.Unit.text(x)
		}
		return m.Unit.text(x)
	}
	unit := ""
	switch {
	case relative:
		unit = " %"
	case m.Unit == Share:
		unit = " pp"
	}
	if change.Low < change.High {
		interval = fmt.Sprintf("[%s, %s]", one(change.Low), one(change.High))
	}
	return one(change.Mean) + unit, interval
}

// tenths writes x with one digit behind the point, or none from a hundred on.
func tenths(x float64) string {
	after := 1
	if math.Abs(x) >= 100 {
		after = 0
	}
	return strings.Replace(strconv.FormatFloat(x, 'f', after, 64), "-", "−", 1)
}

// signed writes x in tenths with its sign, if it has one then.
func signed(x float64) string {
	switch text := tenths(x); {
	case strings.Trim(text, "−0.") == "":
		return "0.0"
	case x > 0:
		return "+" + text
	default:
		return text
	}
}

// loadText writes a load as people give it.
func loadText(load float64) string { return strconv.FormatFloat(load, 'g', -1, 64) }
