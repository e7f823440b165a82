// Package targets says where the processes of a cell show their metrics: each agent and
// gateway writes it into the directory, under a lease, and engines have it in their records.
package targets

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"

	"meridian/member/directory"
	"meridian/member/trust"
)

// Target is where one process of a cell shows its metrics.
type Target struct {
	Kind string `json:"kind"` // agent, gateway or engine
	Name string `json:"name"`
	// Role is an engine's: prefill, decode or both.
	Role string `json:"role,omitempty"`
	// Host is the machine it runs on, "" where its record does not say.
	Host string `json:"host,omitempty"`
	URL  string `json:"url"`
	// Unreachable says why it cannot be scraped from here.
	Unreachable string `json:"unreachable,omitempty"`
}

// Kinds of targets.
const (
	Agent   = "agent"
	Gateway = "gateway"
	Engine  = "engine"
)

// targetPrefix is where agents and gateways write down where their metrics are:
// targets/KIND/NAME. Engines are found by their own records.
const targetPrefix = "targets/"

// maxTargetText bounds each text of a target, which any writer of the directory
// may have left there.
const maxTargetText = 1 << 10

func parseTarget(record directory.Record) (Target, error) {
	var t Target
	if len(record.Value) > directory.MaxValueBytes {
		return t, fmt.Errorf("node: the record at %.80q has %d bytes", record.Key, len(record.Value))
	}
	if err := json.Unmarshal(record.Value, &t); err != nil {
		return t, fmt.Errorf("node: the record at %.80q is not of a target: %.200v", record.Key, err)
	}
	t.Unreachable = ""
	for _, text := range []string{t.Kind, t.Name, t.Role, t.Host, t.URL} {
		if len(text) > maxTargetText || strings.ContainsFunc(text, unicode.IsControl) {
			return t, fmt.Errorf("node: the record at %.80q holds a text that cannot be shown", record.Key)
		}
	}
	return t, t.check()
}

// check tells whether t can be asked for.
func (t *Target) check() error {
	u, err := url.Parse(t.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || t.Name == "" || t.Kind == "" {
		return fmt.Errorf("node: %.80q of %s %.80q is no place of metrics", t.URL, t.Kind, t.Name)
	}
	return nil
}

// List lists where processes of a cell show metrics, as its directory has them,
// sorted by kind and name.
func List(ctx context.Context, d directory.Directory) ([]Target, error) {
	written, err := d.List(ctx, targetPrefix)
	if err != nil {
		return nil, err
	}
	engines, err := d.List(ctx, directory.EnginePrefix)
	if err != nil {
		return nil, err
	}
	here, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	targets, hosts := []Target{}, make(map[string]string)
	for _, record := range written.Records {
		if t, err := parseTarget(record); err == nil { // one that cannot be read hides no other
			targets = append(targets, t)
			if t.Kind == Agent {
				hosts[t.Name] = t.Host
			}
		}
	}
	for _, record := range engines.Records {
		e, err := directory.ParseEngineRecord(record)
		if err != nil || e.URL == "" {
			continue
		}
		t := Target{Kind: Engine, Name: e.ID, Role: e.Role, Host: hosts[e.Home], URL: strings.TrimSuffix(e.URL, "/") + "/metrics"}
		if t.check() == nil {
			targets = append(targets, t)
		}
	}
	for i := range targets {
		targets[i].look(here)
	}
	slices.SortFunc(targets, func(a, b Target) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.URL, b.URL))
	})
	return targets, nil
}

// look notes a loopback address of another machine: here it is another program's.
func (t *Target) look(here string) {
	u, err := url.Parse(t.URL)
	if err != nil || !trust.IsLoopback(u.Hostname()) || t.Host == here || t.Host == "" {
		return
	}
	setting := "telemetry.prometheus_listen"
	switch t.Kind {
	case Gateway:
		setting = "gateway.metrics_listen"
	case Engine:
		setting = "--listen"
	}
	t.Unreachable = fmt.Sprintf("its metrics are at a loopback address of %s: give its %s one that others reach", t.Host, setting)
}

// Announcement keeps a target in the directory while its process runs. A process
// does not wait for it: who cannot be scraped serves all the same.
type Announcement struct {
	stop context.CancelFunc
	done chan struct{}
}

const (
	announcePause = time.Second
	announceLimit = 5 * time.Second
)

// Announce writes down where the metrics of a process are; listen is the address
// that its listener has, and reached the host by which others reach this one, "" for
// what the machine calls itself. A scheme in t.URL is kept.
func Announce(d directory.Directory, t Target, listen, reached string, logger *slog.Logger) *Announcement {
	ctx, stop := context.WithCancel(context.Background())
	a := &Announcement{stop: stop, done: make(chan struct{})}
	t.Host, _ = os.Hostname()
	t.URL = cmp.Or(t.URL, "http") + "://" + reachable(listen, cmp.Or(reached, t.Host)) + "/metrics"
	go func() {
		defer close(a.done)
		for warned := false; ; warned = true {
			err := write(ctx, d, t)
			if err == nil || ctx.Err() != nil {
				return
			}
			if !warned {
				logger.Warn("the directory does not take where metrics are; it is tried again", "error", err)
			}
			select {
			case <-time.After(announcePause):
			case <-ctx.Done():
				return
			}
		}
	}()
	return a
}

// Close ends trying; what is written leaves with the directory.
func (a *Announcement) Close() {
	if a != nil {
		a.stop()
		<-a.done
	}
}

// write puts a target into the directory, under a lease that ends with d.
func write(ctx context.Context, d directory.Directory, t Target) error {
	ctx, cancel := context.WithTimeout(ctx, announceLimit)
	defer cancel()
	value, err := json.Marshal(t)
	if err != nil {
		return err
	}
	lease, err := d.Grant(ctx, directory.LeaseOptions{})
	if err != nil {
		return err
	}
	if _, err = d.Put(ctx, directory.Entry{Key: targetPrefix + t.Kind + "/" + t.Name, Value: value, Lease: lease}); err != nil {
		return errors.Join(err, lease.Revoke(context.WithoutCancel(ctx)))
	}
	return nil
}

// reachable is an address as others dial it: one that takes all of a machine's has
// the machine's name.
func reachable(listen, machine string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = machine
	}
	return net.JoinHostPort(host, port)
}
