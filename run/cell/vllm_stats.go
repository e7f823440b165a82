package cell

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
)

// vllmMetrics are series of vLLM's /metrics, by name, summed over labels. Of
// info, the labels are what is told.
type vllmMetrics struct {
	values map[string]float64
	labels map[string]string
}

const maxMetricsBytes = 16 << 20

// parseMetrics reads the text format of Prometheus; what is not understood is
// left out.
func parseMetrics(text io.Reader) vllmMetrics {
	m := vllmMetrics{values: make(map[string]float64), labels: make(map[string]string)}
	for lines := bufio.NewScanner(text); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "#") {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		if at < 0 {
			continue
		}
		value, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil || math.IsNaN(value) {
			continue
		}
		name, labels, _ := strings.Cut(line[:at], "{")
		m.values[name] += value
		m.labels[name] = strings.TrimSuffix(labels, "}")
	}
	return m
}

// label is the value of a label of the last series of that name.
func (m vllmMetrics) label(name, label string) string {
	for part := range strings.SplitSeq(m.labels[name], `",`) {
		if key, value, found := strings.Cut(part, `="`); found && key == label {
			return strings.TrimSuffix(value, `"`)
		}
	}
	return ""
}

// stats translates what vLLM says of itself. Blocks that are cached and
// that no request uses count as free there.
func (m vllmMetrics) stats() *EngineStats {
	s := new(EngineStats)
	s.Running, s.Waiting = int(m.values["vllm:num_requests_running"]), int(m.values["vllm:num_requests_waiting"])
	s.Blocks.Total, _ = strconv.Atoi(m.label("vllm:cache_config_info", "num_gpu_blocks"))
	s.Blocks.Free = s.Blocks.Total - int(math.Round(m.values["vllm:kv_cache_usage_perc"]*float64(s.Blocks.Total)))
	s.Tokens.Prompt, s.Tokens.Generated = int64(m.values["vllm:prompt_tokens_total"]), int64(m.values["vllm:generation_tokens_total"])
	s.HandOffs.Ready, s.HandOffs.Failed = int(m.values["vllm:meridian_handoff_seconds_count"]), int(m.values["vllm:meridian_handoffs_failed_total"])
	s.Tokens.HandedOver = int64(m.values["vllm:meridian_handoff_tokens_sum"])
	s.Counters.FoundTokens = int64(m.values["vllm:meridian_found_tokens_total"])
	return s
}

// readVLLM asks a server of vLLM how it is.
func readVLLM(ctx context.Context, url string) (*EngineStats, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", request.URL, response.Status)
	}
	return parseMetrics(io.LimitReader(response.Body, maxMetricsBytes)).stats(), nil
}
