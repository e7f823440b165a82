package workload

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

func TestMixedIsSynthetic(t *testing.T) {
	plain, _ := collect(t, "mooncake-conversation", Options{Seed: 1})
	all, info := collect(t, "mooncake-conversation+servegen-r1", Options{Seed: 1})
	if !info.Synthetic || !strings.Contains(info.Label, "synthetic") || len(all) != len(plain) {
		t.Fatalf("%d of %d requests, %+v", len(all), len(plain), info)
	}
	thinking := 0
	for i, r := range all {
		if r.At != plain[i].At || r.Prompt != plain[i].Prompt || !reflect.DeepEqual(r.Prefix, plain[i].Prefix) {
			t.Fatalf("request %d: %+v, want arrival and prompt of %+v", i, r, plain[i])
		}
		if r.Think > 0 {
			thinking++
		}
	}
	if thinking < len(all)*9/10 {
		t.Errorf("%d of %d requests think", thinking, len(all))
	}
	// The 30 seconds of the synthetic mix end long before these arrivals do.
	if long, _ := collect(t, "mooncake-conversation+synthetic", Options{Seed: 1, Synthetic: Mix{Rate: 0.5}}); len(long) != len(plain) {
		t.Errorf("%d of %d requests when lengths begin again", len(long), len(plain))
	}
	file := write(t, "a+b.jsonl", header+`{"at_us":0,"prompt":9,"think":70,"output":30}`+"\n")
	if all, info := collect(t, file, Options{}); len(all) != 1 || info.Synthetic {
		t.Errorf("a file with a plus in its name: %+v", info)
	}
	if all, info := collect(t, "azure-code+"+file, Options{}); len(all) != 500 || !info.Synthetic || all[99].Think != 70 || all[99].Output != 30 {
		t.Errorf("lengths of a file: %d requests, %+v", len(all), info)
	}
	if _, _, err := Open("synthetic+synthetic+synthetic", Options{}); !errors.Is(err, ErrOptions) {
		t.Errorf("three workloads: %v", err)
	}
}

func TestTexts(t *testing.T) {
	dir := t.TempDir()
	put := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("sharegpt.json", `[{"id":"a","conversations":[{"from":"human","value":"`+strings.Repeat("é", 400)+`"},{"from":"gpt","value":"`+strings.Repeat("b", 80)+`"}]},
		{"id":"b","conversations":[{"from":"gpt","value":"not asked for"}]},
		{"id":"c","conversations":[{"from":"human","value":"hi"},{"from":"gpt","value":"hello"}]}]`)
	put("math500.jsonl", `{"problem":"`+strings.Repeat("x", 200)+`","solution":"`+strings.Repeat("y", 400)+`","answer":"4"}`+"\n")
	all, info := collect(t, "sharegpt", Options{DataDir: dir, Seed: 5})
	if !info.Synthetic || info.MeanPrompt != 50.5 || len(all) < 150 || all[0].Prompt != 100 || all[0].Output != 20 || all[1].Prompt != 1 || all[2].Prompt != 100 {
		t.Errorf("%d requests %+v, %+v", len(all), all[:3], info)
	}
	all, info = collect(t, "math500", Options{DataDir: dir, Seed: 5, Duration: time.Minute})
	for _, r := range all {
		if r.Prompt != 50 || r.Output != 100 || r.Think < 600 || r.Think > 6000 {
			t.Fatalf("%+v", r)
		}
	}
	if !info.Synthetic || len(all) < 350 {
		t.Errorf("%d requests, %+v", len(all), info)
	}
	for name, content := range map[string]string{
		"sharegpt.json": `[{"conversations":[{"from":"human","value":"hi"},{"from":"gpt","value":"x"}]}`, "math500.jsonl": "{}\n",
	} {
		put(name, content)
		workload, _, _ := strings.Cut(name, ".")
		if _, _, err := Open(workload, Options{DataDir: dir}); err == nil {
			t.Errorf("%s: took %s", name, content)
		}
		if _, _, err := Open(workload, Options{}); !errors.Is(err, ErrOptions) {
			t.Errorf("%s without data: %v", name, err)
		}
	}
}

func TestServeGenRefuses(t *testing.T) {
	windows := "0,1,1,Gamma,1,1\n600,1,1,Gamma,1,1\n"
	lengths := `{"0":{"input_tokens":"{5: 1.0}","output_tokens":"{10: 1.0}","reason_ratio":"{0.5: 1.0}"}}`
	for name, c := range map[string]struct{ windows, lengths, want string }{
		"good":          {windows, lengths, ""},
		"one window":    {"0,1,1,Gamma,1,1\n", lengths, "fewer than two"},
		"family":        {"0,1,1,Pareto,1,1\n" + windows, lengths, "line 1: the family"},
		"order":         {windows + "300,1,1,Gamma,1,1\n", lengths, "line 3: windows"},
		"not a number":  {"0,1,1,Gamma,1,1\n600,NaN,1,Gamma,1,1\n", lengths, "line 2: column 2"},
		"shape":         {"0,1,1,Gamma,0,1\n" + windows, lengths, "line 1: shape 0"},
		"columns":       {"0,1,1,Gamma,1\n", lengths, "wrong number of fields"},
		"no lengths":    {windows, `{"0":{"input_tokens":"{}","output_tokens":"{}","reason_ratio":"{}"}}`, "no lengths"},
		"probabilities": {windows, strings.Replace(lengths, "{5: 1.0}", "{5: 0.5}", 1), "add up to 0.5"},
		"negative":      {windows, strings.Replace(lengths, "{5: 1.0}", "{5: -1, 6: 1}", 1), "not a probability"},
		"falling":       {windows, strings.Replace(lengths, "{5: 1.0}", "{5: 0.5, 4: 0.5}", 1), "point 2"},
		"ratio":         {windows, strings.Replace(lengths, "{0.5: 1.0}", "{1.5: 1}", 1), "up to 1"},
		"silent":        {"0,0,0,,0,0\n600,0,0,,0,0\n", lengths, "no requests"},
	} {
		data := fstest.MapFS{
			serveGenDir + "/chunk-0-trace.csv":    {Data: []byte(c.windows)},
			serveGenDir + "/chunk-0-dataset.json": {Data: []byte(c.lengths)},
		}
		_, info, err := openServeGen(opening{Options: Options{Scale: 1}, data: data})
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want == "" && (info.MeanThink != 5 || info.MeanPrompt != 5 || info.Rate != 1):
			t.Errorf("%s: %+v", name, info)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// The intervals have the variation that their family and shape say.
func TestIntervals(t *testing.T) {
	dice := stream(1, streamArrivals, 0, 0)
	for name, c := range map[string]struct {
		draw     func() float64
		mean, cv float64
	}{
		"gamma 0.25": {func() float64 { return gamma(dice, 0.25) }, 0.25, 2},
		"gamma 4":    {func() float64 { return gamma(dice, 4) }, 4, 0.5},
		"weibull 1":  {func() float64 { return weibull(dice, 1) }, 1, 1},
		"weibull .5": {func() float64 { return weibull(dice, 0.5) }, 2, 2.236},
	} {
		const n = 400_000
		var sum, squares float64
		for range n {
			x := c.draw()
			sum, squares = sum+x, squares+x*x
		}
		mean := sum / n
		near(t, name+": mean", mean, c.mean, 0.02)
		near(t, name+": squared variation", (squares/n-mean*mean)/(mean*mean), c.cv*c.cv, 0.06)
	}
}

func TestConvergence(t *testing.T) {
	all, _ := collect(t, "servegen-r1", Options{Seed: 9, Duration: time.Hour})
	var after, n float64
	for _, r := range all {
		if r.Think > 100 {
			after += 1 - float64(r.Converged)/float64(r.Think)
			n++
		}
	}
	near(t, "thought after its answer is settled", after/n, 0.1875, 0.03)
}

func BenchmarkServeGen(b *testing.B) {
	source, _, err := Open("servegen-r1", Options{DataDir: os.Getenv("MERIDIAN_DATA"), Scale: 100})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, more := source.Next(); !more {
			b.Fatal("the day ended")
		}
	}
}

// Faults of a public trace are told with their line, before anything runs.
func TestTracesRefuse(t *testing.T) {
	const stamp = "2023-11-16 18:17:03.9799600"
	for content, want := range map[string]string{
		"":                                           "no requests",
		"TIMESTAMP,Context\n":                        "line 1: the first line must be",
		azureHeader + "\n" + stamp + ",1\n":          "line 2: 2 columns",
		azureHeader + "\nyesterday,1,2\n":            "line 2: \"yesterday\" is not a time",
		azureHeader + "\n" + stamp + ",-1,2\n":       "line 2: \"-1\" is not a number",
		azureHeader + "\n" + stamp + ",1,99999999\n": "line 2: \"99999999\" is not a number",
		azureHeader + "\n" + stamp + ",1,2\n" + stamp[:19] + ",1,2\n":    "line 3: arrives",
		azureHeader + "\n" + stamp + ",1,2\n2123" + stamp[4:] + ",1,2\n": "line 3: arrives",
	} {
		data := fstest.MapFS{"azure-2023/AzureLLMInferenceTrace_code.csv": {Data: []byte(content)}}
		if _, _, err := openAzure(opening{Options: Options{Scale: 1}, data: data}, "code"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("azure %q: %v, want %q", content, err, want)
		}
	}
	good := `{"timestamp": 5, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}` + "\n"
	for content, want := range map[string]string{
		`{"timestamp": 5}`: "line 1: input_length is missing",
		good + `{"timestamp": 4, "input_length": 6, "output_length": 5, "hash_ids": [0]}`:        "line 2: arrives",
		good + `{"timestamp": 6, "input_length": 6, "output_length": 5, "hash_ids": [0, 1]}`:     "line 2: more blocks",
		good + `{"timestamp": 6, "input_length": 6, "output_length": 5, "hash_ids": 7}`:          "line 2: hash_ids: expected a list",
		good + `{"timestamp": 6, "input_length": 6, "output_length": 5, "hash_ids": [], "x": 1}`: `line 2: unknown member "x"`,
	} {
		data := fstest.MapFS{"mooncake/conversation_trace.jsonl": {Data: []byte(content)}}
		if _, _, err := openMooncake(opening{Options: Options{Scale: 1}, data: data}, "conversation"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("mooncake %q: %v, want %q", content, err, want)
		}
	}
	if _, _, err := Open("azure-code", Options{DataDir: t.TempDir()}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder without traces: %v", err)
	}
}
