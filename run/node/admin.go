package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"meridian/kv"
)

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
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) { reply(w, n.readiness()) })
	mux.HandleFunc("GET /prefixes/{id}", func(w http.ResponseWriter, r *http.Request) { reply(w, n.History.PrefixesOf(r.PathValue("id"))) })
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

func (d *admin) Close(ctx context.Context) error {
	err := d.server.Shutdown(ctx)
	<-d.served
	return err
}

// cacheTimeout is how long owners may take to tell how they stand, less than who asks
// waits: one that hangs is told of, not waited for.
const cacheTimeout = time.Second

func (n *Agent) replyCache(w http.ResponseWriter, r *http.Request) {
	if n.Store == nil {
		http.Error(w, "this agent has no part in the object cache", http.StatusNotFound)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), cacheTimeout)
	defer cancel()
	c, err := n.Store.Status(ctx)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	reply(w, c)
}
