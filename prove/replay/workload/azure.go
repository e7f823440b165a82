package workload

import (
	"bytes"
	"fmt"
	"strconv"
	"time"
)

func openAzure(o opening, which string) (Source, Info, error) {
	info := Info{
		Label: "Azure LLM inference trace 2023, " + which + ": arrivals and lengths as recorded; no thoughts, no prefixes", Licence: "CC-BY-4.0", Tenants: 1,
	}
	if o.sample {
		info.Sample, info.Synthetic = true, true
		info.Label, info.Licence = "generated sample in the manner of the Azure LLM inference trace 2023, "+which, ""
	}
	return openRecorded(o, "azure-2023/AzureLLMInferenceTrace_"+which+".csv", func(*Info) parser { return azureParser() }, info)
}

const (
	azureHeader = "TIMESTAMP,ContextTokens,GeneratedTokens"
	azureStamp  = "2006-01-02 15:04:05"
)

// azureParser counts time from the first request's.
func azureParser() parser {
	var begin time.Time
	return func(line []byte, number int, r *Request) (bool, error) {
		line = bytes.TrimSuffix(line, []byte("\r"))
		if number == 1 {
			if string(line) != azureHeader {
				return false, fmt.Errorf("the first line must be %s", azureHeader)
			}
			return false, nil
		}
		columns := bytes.Split(line, []byte(","))
		if len(columns) != 3 {
			return false, fmt.Errorf("%d columns, not 3", len(columns))
		}
		at, err := time.Parse(azureStamp, string(columns[0]))
		if err != nil {
			return false, fmt.Errorf("%.40q is not a time like %s", columns[0], azureStamp)
		}
		if begin.IsZero() {
			begin = at
		}
		since := at.Sub(begin)
		if since < 0 || since > maxAtMs*time.Millisecond {
			return false, fmt.Errorf("arrives %v after the first request", since)
		}
		var tokens [2]uint64
		for i, column := range columns[1:] {
			if tokens[i], err = strconv.ParseUint(string(column), 10, 64); err != nil || tokens[i] > maxTokens {
				return false, fmt.Errorf("%.40q is not a number of tokens from 0 to %d", column, maxTokens)
			}
		}
		*r = Request{At: since.Truncate(time.Microsecond), Prompt: max(1, int32(tokens[0])), Output: max(1, int32(tokens[1]))}
		return true, nil
	}
}
