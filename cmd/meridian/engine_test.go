package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"meridian/internal/until"
)

// ask runs `ask URL [FILE [HEADER:VALUE…]]`: it prints what is answered to a GET, or
// to a POST of FILE, which is - for none. It waits for a listener. Negated, it wants an error's status.
func ask(ts *testscript.TestScript, negated bool, args []string) {
	if len(args) < 1 {
		ts.Fatalf("usage: ask URL [FILE [HEADER:VALUE…]]")
	}
	method, body := http.MethodGet, ""
	if len(args) > 1 && args[1] != "-" {
		method, body = http.MethodPost, ts.ReadFile(args[1])
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var response *http.Response
	until.Well(script{ts}, "an answer from "+args[0], func() string {
		request, err := http.NewRequestWithContext(ctx, method, args[0], strings.NewReader(body))
		ts.Check(err)
		request.Close = true
		for _, header := range args[min(len(args), 2):] {
			name, value, _ := strings.Cut(header, ":")
			request.Header.Set(name, value)
		}
		if response, err = http.DefaultClient.Do(request); err != nil {
			return err.Error()
		}
		return ""
	})
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	ts.Check(err)
	fmt.Fprintf(ts.Stdout(), "%s", data)
	if (response.StatusCode >= 400) != negated {
		ts.Fatalf("status %d: %s", response.StatusCode, data)
	}
}

// script fails as tests do.
type script struct{ *testscript.TestScript }

func (script) Helper() {}
