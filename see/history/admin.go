package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// AdminSocket is where the agent of that name answers questions about itself.
func AdminSocket(stateDir, name string) string {
	return filepath.Join(stateDir, "agent-"+name+".sock")
}

// ErrNoRecord means that the agent does not know the transfer.
var ErrNoRecord = errors.New("node: no such transfer")

// Get asks a running agent for what its admin socket shows under a path. ErrNoRecord means
// that it has none of that.
func Get[T any](ctx context.Context, socket, path string) (told T, err error) {
	client := http.Client{
		Timeout: 10 * time.Second,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", socket)
			},
		},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent"+path, nil)
	if err != nil {
		return told, err
	}
	response, err := client.Do(request)
	if err != nil {
		return told, fmt.Errorf("node: the agent at %s does not answer: %w", socket, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 4<<10))
		return told, fmt.Errorf("%w: %s", ErrNoRecord, strings.TrimSpace(string(text)))
	}
	err = json.NewDecoder(response.Body).Decode(&told)
	return told, err
}

// Agents lists the agents of this user that have an admin socket in stateDir.
func Agents(stateDir string) ([]string, error) {
	sockets, err := filepath.Glob(AdminSocket(stateDir, "*"))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, path := range sockets {
		name := strings.TrimPrefix(filepath.Base(path), "agent-")
		names = append(names, strings.TrimSuffix(name, ".sock"))
	}
	slices.Sort(names)
	return names, nil
}
