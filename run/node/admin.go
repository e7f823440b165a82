package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"meridian/kv"
	"meridian/move/agent"
	"meridian/move/transceiver/handoff"
)

// AdminSocket is where the agent of that name answers questions about itself.
func AdminSocket(stateDir, name string) string {
	return filepath.Join(stateDir, "agent-"+name+".sock")
}

// admin answers on a socket that only its user can open. It only shows.
type admin struct {
	server *http.Server
	served chan error
}

func openAdmin(path string, n *Agent) (*admin, error) {
	// The holder of the agent's name finds here at most what a killed one left.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("node: admin socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /transfers", func(w http.ResponseWriter, _ *http.Request) { reply(w, n.Transfers()) })
	mux.HandleFunc("GET /regions", func(w http.ResponseWriter, _ *http.Request) { reply(w, n.Regions()) })
	mux.HandleFunc("GET /handoffs", func(w http.ResponseWriter, _ *http.Request) { reply(w, n.Transceiver.Records()) })
	mux.HandleFunc("GET /phases", n.replyPhases)
	mux.HandleFunc("GET /cache", n.replyCache)
	mux.HandleFunc("GET /prefixes/{id}", n.replyPrefixes)
	mux.HandleFunc("GET /transfers/{id}", explainWith(n.Explain))
	mux.HandleFunc("GET /handoffs/{id}", explainWith(n.Transceiver.Explain))
	d := &admin{
		server: &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second},
		served: make(chan error, 1),
	}
	go func() { d.served <- d.server.Serve(listener) }()
	return d, nil
}

// explainWith answers with the record of the id in the path.
func explainWith[T any](find func(kv.ID) (T, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id, err := kv.ParseID(r.PathValue("id"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		record, err := find(id)
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		reply(w, record)
	}
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func (d *admin) close(ctx context.Context) error {
	err := d.server.Shutdown(ctx)
	<-d.served
	return err
}

// Explain asks a running agent about one of its transfers. ErrNoRecord means
// that it has none of that id.
func Explain(ctx context.Context, stateDir, name string, id kv.ID) (agent.Record, error) {
	var r agent.Record
	err := ask(ctx, AdminSocket(stateDir, name), "/transfers/"+id.String(), &r)
	return r, err
}

// ExplainHandOff asks a running agent about a hand-off: what it knows of it as
// the one that gave, the one that took, or both.
func ExplainHandOff(ctx context.Context, stateDir, name string, id kv.ID) ([]handoff.Record, error) {
	var all []handoff.Record
	err := ask(ctx, AdminSocket(stateDir, name), "/handoffs/"+id.String(), &all)
	return all, err
}

// HandOffs asks a running agent for the records of hand-offs it keeps.
func HandOffs(ctx context.Context, stateDir, name string) ([]handoff.Record, error) {
	var all []handoff.Record
	err := ask(ctx, AdminSocket(stateDir, name), "/handoffs", &all)
	return all, err
}

// Transfers asks a running agent for the records it keeps.
func Transfers(ctx context.Context, stateDir, name string) ([]agent.Record, error) {
	var all []agent.Record
	err := ask(ctx, AdminSocket(stateDir, name), "/transfers", &all)
	return all, err
}

// ErrNoRecord means that the agent does not know the transfer.
var ErrNoRecord = errors.New("node: no such transfer")

func ask(ctx context.Context, socket, path string, into any) error {
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
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("node: the agent at %s does not answer: %w", socket, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 4<<10))
		return fmt.Errorf("%w: %s", ErrNoRecord, strings.TrimSpace(string(text)))
	}
	return json.NewDecoder(response.Body).Decode(into)
}
