package serving

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// post sends JSON, and refuses an answer whose status is not a good one.
func post(ctx context.Context, client *http.Client, url, body string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err == nil && response.StatusCode/100 != 2 {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 500))
		_ = response.Body.Close()
		return nil, fmt.Errorf("%s answers with status %d: %s", url, response.StatusCode, text)
	}
	return response, err
}

// getJSON reads a page of a part.
func getJSON(ctx context.Context, client *http.Client, url string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers with status %d", url, response.StatusCode)
	}
	return json.NewDecoder(io.LimitReader(response.Body, 16<<20)).Decode(into)
}
