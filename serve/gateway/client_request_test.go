package gateway

import (
	"testing"

	"meridian/serve/gateway/request"
)

func parsedRequest(t *testing.T, path, body string) *request.Request {
	t.Helper()
	a, fault := request.Parse(path, []byte(body))
	if fault != nil {
		t.Fatal(fault)
	}
	return a
}
