package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"

	"meridian/member/directory"
	"meridian/see/targets"
)

type targetsCommand struct {
	cellFlags
	Name       string        `help:"Whose certificate to show to an https directory (default: agent.name of the configuration)."`
	Prometheus bool          `help:"Print what Prometheus reads: the JSON of its service discovery."`
	JSON       bool          `help:"Print one JSON object."`
	Out        string        `placeholder:"FILE" help:"Write what Prometheus reads to a file (file_sd_configs), and keep it as the directory is until Ctrl-C."`
	Listen     string        `placeholder:"ADDRESS" help:"Serve what Prometheus reads by HTTP (http_sd_configs), until Ctrl-C; loopback, or with --insecure any."`
	Every      time.Duration `default:"10s" help:"How often the directory is asked for --out (default: ${default})."`
}

func (c *targetsCommand) Help() string {
	return "Lists where the processes of a cell show their metrics, as the directory has them: agents, gateways, engines. " +
		"An address at loopback is of use on its own host only; of others it is said what to set. deploy/prometheus has a configuration that reads it."
}

func (c *targetsCommand) Run(std *stdio, all *commands) error {
	ctx, cancel := untilStopped()
	defer cancel()
	d, err := openCellDirectory(ctx, std, all, &c.cellFlags, c.Name)
	if err != nil {
		return err
	}
	return errors.Join(c.show(ctx, std, all, d), closeSoon(d.Close))
}

func (c *targetsCommand) show(ctx context.Context, std *stdio, all *commands, d directory.Directory) error {
	switch {
	case c.Out != "":
		return c.keep(ctx, std, d)
	case c.Listen != "":
		return c.serve(ctx, std, all, d)
	}
	known, err := listTargets(ctx, d)
	if err != nil {
		return err
	}
	switch {
	case c.Prometheus:
		for _, t := range known {
			if t.Unreachable != "" {
				fmt.Fprintf(std.err, "left out: %s %s: %s\n", oneLine(t.Kind), oneLine(t.Name), oneLine(t.Unreachable))
			}
		}
		return std.writeJSON(groupsOf(known))
	case c.JSON:
		return std.writeJSON(map[string]any{"targets": known})
	case len(known) == 0:
		_, err := fmt.Fprintln(std.out, "nothing in this cell shows metrics")
		return err
	}
	return targetTable(std.out, known)
}

func listTargets(ctx context.Context, d directory.Directory) ([]targets.Target, error) {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	return targets.List(ctx, d)
}

func targetTable(out io.Writer, known []targets.Target) error {
	table := newTable(out, "KIND\tNAME\tHOST\tMETRICS")
	for _, t := range known {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", oneLine(t.Kind), oneLine(t.Name), oneLine(t.Host), oneLine(t.URL))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, t := range known {
		if t.Unreachable != "" {
			fmt.Fprintf(out, "%s %s: %s\n", oneLine(t.Kind), oneLine(t.Name), oneLine(t.Unreachable))
		}
	}
	return nil
}

// targetGroup is one entry of Prometheus's service discovery, by file or by HTTP.
type targetGroup struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// groupsOf are the targets that can be scraped from here, a group for each: their
// labels differ.
func groupsOf(known []targets.Target) []targetGroup {
	groups := []targetGroup{}
	for _, t := range known {
		u, err := url.Parse(t.URL)
		if err != nil || t.Unreachable != "" {
			continue
		}
		labels := map[string]string{"__scheme__": u.Scheme, "__metrics_path__": u.Path, "kind": t.Kind, "name": t.Name}
		for name, value := range map[string]string{"host": t.Host, "role": t.Role} {
			if value != "" {
				labels[name] = value
			}
		}
		groups = append(groups, targetGroup{Targets: []string{u.Host}, Labels: labels})
	}
	return groups
}

// keep writes the file anew whenever the cell has changed. While the directory is
// away the file stays as it is: unknown is not gone.
func (c *targetsCommand) keep(ctx context.Context, std *stdio, d directory.Directory) error {
	last := ""
	for {
		known, err := listTargets(ctx, d)
		if err == nil {
			var text []byte
			if text, err = json.MarshalIndent(groupsOf(known), "", "  "); err != nil {
				return err
			}
			if last != string(text) {
				if err := writeAtomic(c.Out, func(w io.Writer) error { _, err := fmt.Fprintf(w, "%s\n", text); return err }); err != nil {
					return err
				}
				last = string(text)
				fmt.Fprintf(std.out, "%s has %d targets\n", c.Out, len(groupsOf(known)))
			}
		} else if ctx.Err() == nil {
			fmt.Fprintf(std.err, "the directory does not answer, %s stays as it is: %v\n", c.Out, err)
		}
		select {
		case <-time.After(max(c.Every, time.Second)):
		case <-ctx.Done():
			return nil
		}
	}
}

// serve answers every request with what the directory has then.
func (c *targetsCommand) serve(ctx context.Context, std *stdio, all *commands, d directory.Directory) error {
	listener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return err
	}
	if address, isTCP := listener.Addr().(*net.TCPAddr); isTCP && !address.IP.IsLoopback() && !c.Insecure {
		return errors.Join(invalid("listen at 127.0.0.1, or say --insecure", "%s is beyond loopback, and the list has neither keys nor TLS", c.Listen), listener.Close())
	}
	server := &http.Server{ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(all.logger(std).Handler(), slog.LevelDebug)}
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		known, err := listTargets(r.Context(), d)
		if err != nil { // Prometheus keeps the list that it had
			http.Error(w, "the directory does not answer", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(groupsOf(known)) // the client may have gone
	})
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	url := "http://" + listener.Addr().String()
	all.ready(std, "targets ready at "+url, "url", url)
	select {
	case <-ctx.Done():
	case err := <-failed:
		return err
	}
	err = closeSoon(server.Shutdown)
	<-failed
	return err
}
