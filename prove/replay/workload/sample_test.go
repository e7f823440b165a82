package workload

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"meridian/internal/golden"
)

// TestGenerated holds the samples to what makes them. They are like the public
// traces in the mean, and nothing in them was taken from one.
func TestGenerated(t *testing.T) {
	for client := range 4 {
		golden.File(t, fmt.Sprintf("sample/servegen-deepseek-r1/chunk-%d-trace.csv", client), sampleWindows(client))
		golden.File(t, fmt.Sprintf("sample/servegen-deepseek-r1/chunk-%d-dataset.json", client), sampleLengths())
	}
	golden.File(t, "sample/mooncake/conversation_trace.jsonl", sampleMooncake(conversations{requests: 600, again: 0.42, blocks: 15, output: 343}))
	golden.File(t, "sample/mooncake/synthetic_trace.jsonl", sampleMooncake(conversations{requests: 300, again: 0.7, blocks: 12, output: 149}))
	golden.File(t, "sample/azure-2023/AzureLLMInferenceTrace_code.csv", sampleAzure(2.4, 2048, 28))
	golden.File(t, "sample/azure-2023/AzureLLMInferenceTrace_conv.csv", sampleAzure(5.4, 1155, 211))
}

// sampleWindows: a day in hours, busiest at 2 and at 22, 16 requests a second
// in the mean over all four clients, half of it from the first.
func sampleWindows(client int) []byte {
	var b bytes.Buffer
	for hour := range 24 {
		day := 1 + 0.6*math.Cos(2*math.Pi*float64(hour)/24)
		rate := 8 * day / math.Pow(2, float64(min(client, 2)))
		shape, family := 1.1, "Gamma"
		if client > 1 {
			shape, family = 0.7, "Weibull"
		}
		cv := 1 / math.Sqrt(shape)
		fmt.Fprintf(&b, "%d,%.4f,%.4f,%s,%g,%.4f\n", hour*3600, rate, cv, family, shape, 1/(rate*shape))
	}
	return b.Bytes()
}

// sampleLengths: what is generated is log-normal with ServeGen's median and
// 95th percentile; a third of it is thought in short thoughts, four fifths in
// long ones.
func sampleLengths() []byte {
	input := lognormal(800, 1.15, 57000)
	output := lognormal(792, 1.2, 32768)
	var weights [21]float64
	var total float64
	for i := range weights {
		x := float64(i) / 20
		weights[i] = 0.35*hump(x, 0.35, 0.08) + 0.65*hump(x, 0.88, 0.06)
		total += weights[i]
	}
	var ratio []string
	for i, w := range weights {
		ratio = append(ratio, fmt.Sprintf("%.2f: %.6f", float64(i)/20, w/total))
	}
	return fmt.Appendf(nil, "{\n  \"0\": {\n    \"input_tokens\": \"{%s}\",\n    \"output_tokens\": \"{%s}\",\n    \"reason_ratio\": \"{%s}\"\n  }\n}\n",
		input, output, strings.Join(ratio, ", "))
}

func hump(x, at, wide float64) float64 {
	return math.Exp(-(x-at)*(x-at)/(2*wide*wide)) / (wide * math.Sqrt(2*math.Pi))
}

// lognormal is a distribution in 99 steps of equal probability.
func lognormal(median, sigma, highest float64) string {
	var points []string
	last := 0.0
	for i := range 99 {
		z := math.Sqrt2 * math.Erfinv(2*(float64(i)+0.5)/99-1)
		v := math.Round(min(highest, median*math.Exp(sigma*z)))
		last = max(v, last+1)
		points = append(points, fmt.Sprintf("%.0f: %.6f", last, 1.0/99))
	}
	return strings.Join(points, ", ")
}

// conversations: how many requests, how many of them go on with one before,
// and the mean of blocks that each adds and of tokens that answer it.
type conversations struct {
	requests              int
	again, blocks, output float64
}

// sampleMooncake: sessions that come again with what they said before, after a
// system prompt of one block that all share.
func sampleMooncake(c conversations) []byte {
	dice := stream(1, streamLengths, 0, 0)
	var b bytes.Buffer
	var sessions [][]string
	next, at := 1, 0.0
	for range c.requests {
		at += dice.ExpFloat64() / 3.4
		blocks := []string{"0"}
		session := len(sessions)
		if session > 0 && dice.Float64() < c.again {
			session = session - 1 - dice.IntN(min(session, 40))
			blocks = sessions[session]
		} else {
			sessions = append(sessions, nil)
		}
		for range 1 + int(dice.ExpFloat64()*c.blocks) {
			blocks = append(blocks[:len(blocks):len(blocks)], fmt.Sprint(next))
			next++
		}
		sessions[session] = blocks
		tokens := len(blocks)*mooncakeBlock - dice.IntN(mooncakeBlock)
		fmt.Fprintf(&b, "{\"timestamp\": %d, \"input_length\": %d, \"output_length\": %d, \"hash_ids\": [%s]}\n",
			int(at*1000), tokens, 1+min(2000, int32(dice.ExpFloat64()*c.output)), strings.Join(blocks, ", "))
	}
	return b.Bytes()
}

func sampleAzure(rate, context, generated float64) []byte {
	dice := stream(2, streamLengths, 0, 0)
	var b bytes.Buffer
	fmt.Fprintln(&b, azureHeader)
	at := time.Date(2023, 11, 16, 18, 15, 0, 0, time.UTC)
	for range 500 {
		at = at.Add(seconds(dice.ExpFloat64() / rate))
		fmt.Fprintf(&b, "%s,%d,%d\n", at.Format("2006-01-02 15:04:05.0000000"), 1+int(dice.ExpFloat64()*context), 1+int(dice.ExpFloat64()*generated))
	}
	return b.Bytes()
}
