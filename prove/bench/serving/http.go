package serving

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"meridian/run/cell/openaiclient"
)

// send is what openaiclient sends, with the address in what goes wrong.
func send(ctx context.Context, client *http.Client, method, url string, body []byte) (*http.Response, error) {
	c := openaiclient.Client{URL: url, HTTP: client}
	response, err := c.Send(ctx, method, "", body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", url, err)
	}
	return response, nil
}

// post sends JSON, and refuses an answer whose status is not a good one.
func post(ctx context.Context, client *http.Client, url, body string) (*http.Response, error) {
	return send(ctx, client, http.MethodPost, url, []byte(body))
}

// getJSON reads a page of a part.
func getJSON(ctx context.Context, client *http.Client, url string, into any) error {
	response, err := send(ctx, client, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return json.NewDecoder(io.LimitReader(response.Body, 16<<20)).Decode(into)
}
