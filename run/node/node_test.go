package node

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"meridian/kv"
	"meridian/member/trust"
	"meridian/move/agent"
	"meridian/move/fabric"
	"meridian/move/mem"
	"meridian/see/history"
	"meridian/see/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, o AgentOptions) *Agent {
	t.Helper()
	o.NoDirectory, o.Listen, o.Build = true, cmp.Or(o.Listen, "127.0.0.1:0"), telemetry.Build{Version: "v1", Commit: "c", Go: "go"}
	n, err := OpenAgent(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		http.DefaultClient.CloseIdleConnections()
		if err := n.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return n
}

// loop moves a few bytes from the agent to itself.
func loop(t *testing.T, n *Agent) kv.ID {
	t.Helper()
	arena, err := mem.NewArena(mem.ArenaOptions{Name: "node", SizeBytes: 8192, NUMANode: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := arena.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	region, err := n.Register(arena.Section, "")
	if err != nil {
		t.Fatal(err)
	}
	self, err := n.LoadMetadata(n.MetadataBlob())
	if err != nil {
		t.Fatal(err)
	}
	local, err := n.Local([]agent.Descriptor{{Address: region.Address, Length: 100}})
	if err != nil {
		t.Fatal(err)
	}
	remote, err := self.Remote([]agent.Descriptor{{Address: region.Address + 4096, Length: 100}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := n.Prepare(fabric.Write, agent.Side{List: local}, agent.Side{List: remote})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	transfer, err := r.Post(t.Context(), agent.PostOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := transfer.Await(t.Context()); err != nil {
		t.Fatal(err)
	}
	return transfer.ID
}

func TestAgentShowsItself(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	n := open(t, AgentOptions{Name: "a", StateDir: dir, Metrics: "127.0.0.1:0"})
	id := loop(t, n)

	if names, err := history.Agents(dir); err != nil || !slices.Equal(names, []string{"a"}) {
		t.Errorf("agents %v, %v", names, err)
	}
	record, err := history.Get[agent.Record](t.Context(), history.AdminSocket(dir, "a"), "/transfers/"+id.String())
	if err != nil || record.ID != id || record.State != fabric.Done || record.Op != fabric.Write || record.Bytes != 100 {
		t.Errorf("%+v, %v", record, err)
	}
	if all, err := history.Get[[]agent.Record](t.Context(), history.AdminSocket(dir, "a"), "/transfers"); err != nil || len(all) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
	if _, err := history.Get[agent.Record](t.Context(), history.AdminSocket(dir, "a"), "/transfers/"+agent.NewID().String()); !errors.Is(err, history.ErrNoRecord) {
		t.Errorf("explained what never was: %v", err)
	}
	if _, err := history.Get[[]agent.Record](t.Context(), history.AdminSocket(dir, "b"), "/transfers"); err == nil {
		t.Error("an agent that does not run answered")
	}
	response, err := http.Get("http://" + n.MetricsAddr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil || !strings.Contains(string(body), `meridian_agent_bytes_total{op="write"} 100`) {
		t.Errorf("%v\n%s", err, body)
	}
}

func TestSockets(t *testing.T) {
	dir := t.TempDir()
	open(t, AgentOptions{Name: "a", StateDir: dir})
	info, err := os.Stat(history.AdminSocket(dir, "a"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if _, err := OpenAgent(t.Context(), AgentOptions{Name: "a", StateDir: dir, Listen: "127.0.0.1:0", NoDirectory: true}); err == nil ||
		!strings.Contains(err.Error(), "runs already") {
		t.Errorf("two agents of one name: %v", err)
	}
	// What a killed agent leaves behind is in no other's way.
	stale := history.AdminSocket(dir, "dead")
	if err := os.WriteFile(stale, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, AgentOptions{Name: "dead", StateDir: dir})
}

func TestBeyondLoopback(t *testing.T) {
	for listen, refused := range map[string]bool{
		"127.0.0.1:0": false, "localhost:0": false, "[::1]:0": false,
		"0.0.0.0:0": true, ":0": true, "[::]:0": true, "10.1.2.3:0": true, "example:0": true, "nonsense": true,
	} {
		o := AgentOptions{Name: "a", Listen: listen, Logger: slog.New(slog.DiscardHandler)}
		err := o.checkListen(trust.Identity{})
		if (err != nil) != refused {
			t.Errorf("%s: %v", listen, err)
		}
		if _, _, malformed := net.SplitHostPort(listen); malformed != nil {
			continue
		}
		for _, command := range []string{"`meridian cert init`", "`meridian cert issue a`"} {
			if refused && !strings.Contains(err.Error(), command) {
				t.Errorf("%s: the error does not name %s: %v", listen, command, err)
			}
		}
		if err := o.checkListen(trust.Identity{TLS: new(trust.Source)}); err != nil {
			t.Errorf("%s with TLS: %v", listen, err)
		}
		var log bytes.Buffer
		o.Insecure, o.Logger = true, slog.New(slog.NewTextHandler(&log, nil))
		if err := o.checkListen(trust.Identity{}); err != nil || strings.Contains(log.String(), "level=WARN") != refused {
			t.Errorf("%s, insecure: %v, log %q", listen, err, &log)
		}
	}
}
