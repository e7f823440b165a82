package report

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"meridian/internal/golden"
)

// The three files of a report that was made by hand. `go test -update` writes
// them, for a reader to look at.
func TestGeneratedReport(t *testing.T) {
	runs := slices.DeleteFunc(sampleRuns(), func(r Run) bool { return r.Load < 0.9 || r.Seed > 2 })
	r, err := Build(sampleAbout(), runs)
	if err != nil {
		t.Fatal(err)
	}
	for name, write := range map[string]func(io.Writer) error{"report.json": r.WriteJSON, "report.md": r.WriteMarkdown, "report.html": r.WriteHTML} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		golden.File(t, "testdata/"+name, b.Bytes())
	}
	var b bytes.Buffer
	if err := Compare(r, r).WriteMarkdown(&b, true); err != nil {
		t.Fatal(err)
	}
	golden.File(t, "testdata/diff.md", b.Bytes())
}

func TestOrderOfRunsDoesNotMatter(t *testing.T) {
	var want bytes.Buffer
	if err := sample(t).WriteJSON(&want); err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(2) {
		runs := sampleRuns()
		rand.New(rand.NewPCG(seed, 1)).Shuffle(len(runs), func(i, j int) { runs[i], runs[j] = runs[j], runs[i] })
		r, err := Build(sampleAbout(), runs)
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := r.WriteJSON(&got); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), want.Bytes()) {
			t.Fatalf("the report depends on the order of its runs (shuffled by %d)", seed)
		}
	}
}

func TestReadIsWhatWasWritten(t *testing.T) {
	want := sample(t)
	var b bytes.Buffer
	if err := want.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	got, err := Read(&b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestReadRefuses(t *testing.T) {
	const head = `{"schema": "meridian-replay-report", "version": 1, "policies": ["p"], "loads": [1], `
	repeated := func(s string, times int) string { return strings.TrimSuffix(strings.Repeat(s+",", times), ",") }
	for name, c := range map[string]struct{ text, says string }{
		"no JSON":         {"hello", "invalid character"},
		"another schema":  {`{"schema": "something"}`, "its schema"},
		"another version": {`{"schema": "meridian-replay-report", "version": 99}`, "its version"},
		"no points":       {head + `"seeds": [1]}`, "0 points"},
		"no seeds":        {head + `"points": [{"policy": "p", "load": 1}]}`, "0 seeds"},
		"seeds missing":   {head + `"seeds": [1, 2], "points": [{"policy": "p", "load": 1, "values": [{"metric": "ttft_p50", "seeds": [1]}]}]}`, "1 values for 2 seeds"},
		"a point twice":   {head + `"seeds": [1], "loads": [1, 2], "points": [{"policy": "p", "load": 1}, {"policy": "p", "load": 1}]}`, "twice"},
		"many seeds":      {head + `"seeds": [` + repeated("1", 20000) + `], "points": [{"policy": "p", "load": 1}]}`, "20000 seeds; there are 1 to 1000"},
		"many points":     {head + `"seeds": [1], "points": [` + repeated(`{"policy": "p"}`, 5000) + `]}`, "5000 points; there are 1 to 1"},
		"many loads":      {head + `"seeds": [1], "loads": [` + repeated("1", 65) + `], "points": [{"policy": "p"}]}`, "65 loads"},
		"many policies":   {head + `"seeds": [1], "policies": [` + repeated(`"p"`, 65) + `], "points": [{"policy": "p"}]}`, "65 policies"},
		"many values":     {head + `"seeds": [1], "points": [{"policy": "p", "values": [` + repeated(`{"seeds": [1]}`, 257) + `]}]}`, "257 values"},
		"a long name":     {head + `"seeds": [1], "points": [{"policy": "` + strings.Repeat("p", 201) + `"}]}`, "201 bytes"},
		"many objects":    {head + `"points": [` + repeated("{}", 1<<18) + `]}`, "objects"},
		"many members":    {head + `"seeds": [` + repeated("1", 5<<20) + `]}`, "members"},
		"too long":        {head + strings.Repeat(" ", 33<<20) + `}`, "bytes"},
	} {
		if _, err := Read(strings.NewReader(c.text)); !errors.Is(err, ErrFile) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %.200v", name, err)
		}
	}
}

// What is read again must not have been refused to be written.
func TestWhatIsBuiltCanBeRead(t *testing.T) {
	about := sampleAbout()
	about.Policies, about.Subject = []string{"p"}, "p"
	runs := make([]Run, MaxSeeds+1)
	for i := range runs {
		runs[i] = Run{Policy: "p", Load: 1, Seed: uint64(i), Values: map[string]float64{TailTTFVT: float64(i)}}
	}
	if _, err := Build(about, runs); !errors.Is(err, ErrRuns) {
		t.Errorf("%d seeds: %v", len(runs), err)
	}
	r, err := Build(about, runs[1:])
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(&b); err != nil {
		t.Error(err)
	}
}

func TestVerdicts(t *testing.T) {
	r := sample(t)
	for _, c := range []struct {
		load            float64
		metric, against string
		want            Verdict
	}{
		{0.5, TailTTFVT, "stock", Flat}, // 0.3 % in noise of 1 %
		{1.1, TailTTFVT, "stock", Win},
		{1.1, TailTTFVT, "pascal", Win},
		{1.1, Attainment, "stock", Win},
		{1.1, Throughput, "stock", Flat}, // the same figures
		{1.1, Throughput, "pascal", Win}, // paired: 5 % in a spread of 20 %
		{0.5, "think_itl_p99", "stock", Loss},
		{1.1, "think_tokens", "stock", None}, // a fact
	} {
		d := r.deltaOf(c.load, c.metric, c.against)
		if d == nil || d.Verdict != c.want {
			t.Errorf("%s at %v against %s: %+v, want %q", c.metric, c.load, c.against, d, c.want)
		}
	}
	for _, s := range r.Standings {
		want := map[string][]string{"stock": {"stock-512", "meridian"}, "stock-512": {"meridian"}, "pascal": {"stock-512", "meridian"}}[s.Policy]
		if s.Load == 1.1 && !slices.Equal(s.DominatedBy, want) {
			t.Errorf("%s at 1.1 is dominated by %v, want %v", s.Policy, s.DominatedBy, want)
		}
	}
}

// A difference must be sure, and be one: percentiles are known to a bucket of
// their histogram, which is 1/128 wide.
func TestVerdictsNeedADifference(t *testing.T) {
	ttft := metricOf(Metrics, "ttft_p99")
	qoe := metricOf(Metrics, "qoe")
	throughput := metricOf(Metrics, Throughput)
	evicted := metricOf(Metrics, "evicted_output_critical")
	for _, c := range []struct {
		m            Metric
		values, base []float64
		want         Verdict
	}{
		{ttft, []float64{97, 98, 99}, []float64{100, 101, 102}, Win},
		{ttft, []float64{100 * 127 / 128., 101 * 127 / 128., 102 * 127 / 128.}, []float64{100, 101, 102}, Flat}, // sure, and one bucket
		{qoe, []float64{0.902, 0.901, 0.900}, []float64{0.895, 0.894, 0.893}, Flat},
		{throughput, []float64{99.4, 100.4, 101.4}, []float64{100, 101, 102}, Loss},    // counted
		{throughput, []float64{99.95, 100.95, 101.95}, []float64{100, 101, 102}, Flat}, // sure, and nothing
		{ttft, []float64{50, 180, 130}, []float64{100, 101, 102}, Flat},                // much, and not sure
		{ttft, []float64{120, 122, 121}, []float64{100, 101, 102}, Loss},
		{evicted, []float64{0.0004, 0.0005, 0.0006}, []float64{0, 0, 0}, Loss}, // where there were none
		{ttft, []float64{80, 80, 80}, []float64{100, 100, 100}, None},          // seeds that drew nothing
	} {
		if got := c.m.verdict(pairedGap(c.values, c.base)); got != c.want {
			t.Errorf("%s of %v against %v is %q, want %q", c.m.Name, c.values, c.base, got, c.want)
		}
	}
}

// One seed has no interval, and so no verdict.
func TestOneSeedHasNoVerdict(t *testing.T) {
	runs := slices.DeleteFunc(sampleRuns(), func(r Run) bool { return r.Seed > 0 })
	r, err := Build(sampleAbout(), runs)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range r.Deltas {
		if d.Verdict != None {
			t.Fatalf("one seed says %s", d.Verdict)
		}
	}
}

func TestBuildRefuses(t *testing.T) {
	about, runs := sampleAbout(), sampleRuns()
	other := about
	other.Subject = "absent"
	strange := slices.Clone(runs)
	strange[0].Seed = 99 // which no other policy has
	for name, c := range map[string]struct {
		about About
		runs  []Run
	}{
		"no runs": {about, nil}, "one is missing": {about, runs[1:]}, "one twice": {about, append(runs[:len(runs):len(runs)], runs[0])},
		"a subject without runs": {other, runs}, "a seed of its own": {about, strange},
	} {
		if _, err := Build(c.about, c.runs); !errors.Is(err, ErrRuns) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A figure that one seed lacks has no mean.
func TestWhatIsNotMeasuredIsLeftOut(t *testing.T) {
	runs := sampleRuns()
	delete(runs[0].Values, "ttot_p50")
	runs[1].Values["ttot_p95"] = math.NaN()
	r, err := Build(sampleAbout(), runs)
	if err != nil {
		t.Fatal(err)
	}
	if v := r.Point(runs[0].Policy, runs[0].Load).value("ttot_p50"); v != nil {
		t.Errorf("the mean of four seeds: %+v", v)
	}
	if v := r.Point(runs[1].Policy, runs[1].Load).value("ttot_p95"); v != nil {
		t.Errorf("a mean with a NaN in it: %+v", v)
	}
	if err := r.WriteJSON(io.Discard); err != nil {
		t.Error(err)
	}
}

func TestCompareFindsWhatChanged(t *testing.T) {
	a := sample(t)
	runs := sampleRuns()
	for i := range runs {
		if runs[i].Policy == "meridian" && runs[i].Load == 0.9 {
			runs[i].Values[TailTTFVT] *= 1.02
		}
	}
	b, err := Build(sampleAbout(), runs)
	if err != nil {
		t.Fatal(err)
	}
	c := Compare(a, b)
	if !c.Paired || c.Count(Loss) != 1 || c.Count(Win) != 0 {
		t.Errorf("paired %v, %d losses, %d wins; want one loss", c.Paired, c.Count(Loss), c.Count(Win))
	}
	// The same 2 % drown in the spread of seeds once requests differ.
	b.Workload.FromS = 7200
	if c := Compare(a, b); c.Paired || c.Count(Loss) != 0 {
		t.Errorf("paired %v, %d losses; want none", c.Paired, c.Count(Loss))
	}
	b.Points = slices.DeleteFunc(b.Points, func(p Point) bool { return p.Policy == "pascal" })
	if c := Compare(a, b); len(c.Lone) != 3 {
		t.Errorf("%q, want the three points of pascal", c.Lone)
	}
}

// A report of another's making gives no orders to the terminal it is shown on.
func TestComparisonIsPrintable(t *testing.T) {
	a, b := sample(t), sample(t)
	b.Command, b.Commit = "meridian\x1b[2J", "\u009b31m"
	for i := range b.Points {
		b.Points[i].Policy += "\x1b]0;title\a"
	}
	var text bytes.Buffer
	if err := Compare(a, b).WriteMarkdown(&text, true); err != nil {
		t.Fatal(err)
	}
	if i := strings.IndexFunc(text.String(), func(c rune) bool { return unicode.IsControl(c) && c != '\n' }); i >= 0 {
		t.Errorf("%q", text.String()[i:min(len(text.String()), i+40)])
	}
}

// Who ends thoughts does less work: it stands last, with a word, and neither its
// wins nor its losses are among the others'.
func TestWhoDoesLessStandsApart(t *testing.T) {
	r := sample(t)
	if got, want := r.others(), []string{"stock", "pascal", "stock-512", "static-budget"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if head := r.shortTable().Head; head[len(head)-1] != "against static-budget (ends thoughts)" {
		t.Errorf("%q", head)
	}
	if d := r.deltaOf(1.1, TailTTFVT, "static-budget"); d == nil || d.Verdict != Loss {
		t.Errorf("%+v, want a loss", d)
	}
	if text := r.lossText(); strings.Contains(text, "against static-budget") || !strings.Contains(text, "loses 0.") {
		t.Error(text)
	}
	for _, row := range r.lossTable(r.peers()).Rows {
		if row[1].Text == "static-budget" || row[0].Text == "TTFVT P99" {
			t.Errorf("%v is among the losses to peers", row)
		}
	}
	if !strings.Contains(r.shortLossText(), "against static-budget") || len(r.lossTable(r.shorteners()).Rows) == 0 {
		t.Error(r.shortLossText())
	}
	// Where all end thoughts alike, no policy stands apart.
	runs := sampleRuns()
	for i := range runs {
		runs[i].Values["thought_saved"] = 0.3
	}
	r, err := Build(sampleAbout(), runs)
	if err != nil {
		t.Fatal(err)
	}
	if short := r.shorteners(); len(short) > 0 || len(r.notes()) != 6 {
		t.Errorf("%v stand apart; %q", short, r.notes())
	}
}

// What is judged does not see the wait before an answer, nor the median: the
// short answer shows what does, and says so.
func TestShortAnswer(t *testing.T) {
	r := sample(t)
	var seen []string
	for _, row := range r.shortTable().Rows {
		seen = append(seen, row[0].Text)
	}
	if got, want := slices.Compact(seen), []string{"TTFVT P50", "TTFVT P99", "slowdown P99", "SLO attainment", "throughput"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if !strings.Contains(r.notes()[0], "ignore how long the request waited") {
		t.Errorf("%q", r.notes())
	}
}

// A report with a variant says what its setting alone brings.
func TestWhereTheLeadComesFrom(t *testing.T) {
	r := sample(t)
	// At load 1.1 stock has 9 times what it has alone, with the setting 6.6, and
	// meridian 5.8.
	if text := r.leadText(); !strings.Contains(text, "stock-512 is stock with step_tokens=512. Of the lead of meridian over stock in TTFVT P99 this setting alone closes") ||
		!regexp.MustCompile(`7[3-7] % at load 1\.1`).MatchString(text) {
		t.Error(text)
	}
	for _, row := range r.leadTable().Rows {
		if len(row) != 2+len(r.Loads) {
			t.Errorf("%v", row)
		}
		if row[1].Text == "throughput" && row[2].Text != "no lead" {
			t.Errorf("%v: there is none", row)
		}
	}
	for i := range r.Deltas {
		r.Deltas[i].Verdict = Flat
	}
	if text := r.leadText(); !strings.Contains(text, "meridian has no sure lead in TTFVT P99") {
		t.Error(text)
	}
	r.Variants = nil
	if text := r.leadText(); text != "" || len(r.leadTable().Rows) > 0 {
		t.Error(text)
	}
}

// No other policy has the subject's line, and as many as there are lines have one
// each, of which the page knows the colour.
func TestLinesDiffer(t *testing.T) {
	r := &Report{About: About{Subject: "p0"}}
	seen := make(map[int]string)
	for i := range 2 * styles {
		name := fmt.Sprint("p", i)
		r.Policies = append(r.Policies, name)
		style := r.style(name)
		if i > 0 && style == 0 || i < styles && seen[style] != "" {
			t.Errorf("%s has the line of %s", name, seen[style])
		}
		seen[style] = name
		if !strings.Contains(pageText, fmt.Sprintf(".line.s%d ", style)) || style >= len(marks) {
			t.Errorf("style %d is unknown", style)
		}
	}
}

// The page begins with pictures; what was lost is folded up.
func TestOrderOfThePage(t *testing.T) {
	var page bytes.Buffer
	if err := sample(t).WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, part := range []string{"<h2>Load and latency", "<svg class=\"chart\"", "<h2>In short", "<table", "<h2>Where meridian loses", "<details><summary>All of it", "<h2>Where the lead comes from"} {
		i := bytes.Index(page.Bytes()[at:], []byte(part))
		if i < 0 {
			t.Fatalf("no %s behind the part before it", part)
		}
		at += i
	}
}

// The page must need nothing from anywhere, and names must not become markup.
func TestPageStandsAlone(t *testing.T) {
	about, runs := sampleAbout(), sampleRuns()
	evil := `<script>alert(1)</script>`
	about.Policies, about.Subject, about.Command = []string{"stock", "static-budget", "pascal", "stock-512", evil}, evil, evil
	about.Variants[0].Settings = evil
	about.Workload.Label = evil
	for i := range runs {
		if runs[i].Policy == "meridian" {
			runs[i].Policy = evil
		}
	}
	r, err := Build(about, runs)
	if err != nil {
		t.Fatal(err)
	}
	var page, text bytes.Buffer
	if err := errors.Join(r.WriteHTML(&page), r.WriteMarkdown(&text)); err != nil {
		t.Fatal(err)
	}
	for _, unwanted := range []string{`<script`, `src=`, `href=`, `url\(`, `@import`, `NaN`, `Inf`, `ZgotmplZ`} {
		if found := regexp.MustCompile(unwanted).FindIndex(page.Bytes()); found != nil {
			t.Errorf("the page has %s: %.80s", unwanted, page.Bytes()[found[0]:])
		}
	}
	if before, _, _ := strings.Cut(text.String(), "```"); strings.Contains(before, "<script") {
		t.Error("a name is markup in report.md")
	}
}
