package node

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	"meridian/move/agent"
	"meridian/move/transceiver"
	"meridian/move/transceiver/handoff"
	"meridian/see/history"
)

// Whatever a client writes to the admin socket, it goes on answering.
func FuzzAdmin(f *testing.F) {
	for _, said := range []string{
		"GET /transfers HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n",
		"GET /transfers/00000000000000000000000000000000 HTTP/1.1\r\nHost: agent\r\n\r\n",
		"GET /transfers/xyz HTTP/1.0\r\n\r\n",
		"GET /transfers/..%2f..%2fetc HTTP/1.1\r\nHost: x\r\n\r\n",
		"POST /regions HTTP/1.1\r\nHost: agent\r\nContent-Length: 4\r\n\r\n\x00\x00\x00\x00",
		"GET /regions HTTP/1.1\r\nHost: agent\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
	} {
		f.Add([]byte(said))
	}
	a, err := agent.Open(f.Context(), agent.Options{Name: "a", Fabrics: []agent.Opener{toFiles}})
	if err != nil {
		f.Fatal(err)
	}
	socket := filepath.Join(f.TempDir(), "s")
	tr, err := transceiver.Open(f.Context(), transceiver.Options{Agent: a, TicketKey: handoff.Key{1}})
	if err != nil {
		f.Fatal(err)
	}
	d, err := openAdmin(socket, &Agent{Agent: a, Transceiver: tr})
	if err != nil {
		f.Fatal(err)
	}
	d.server.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	f.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := d.Close(ctx); err != nil {
			f.Error(err)
		}
		if err := errors.Join(tr.Close(ctx), a.Close(ctx)); err != nil {
			f.Error(err)
		}
	})
	f.Fuzz(func(t *testing.T, said []byte) {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		_, _ = conn.Write(said)
		_ = conn.(*net.UnixConn).CloseWrite()
		_, _ = io.Copy(io.Discard, conn)
		if all, err := history.Get[[]agent.Record](t.Context(), socket, "/transfers"); err != nil || len(all) != 0 {
			t.Fatalf("after % x: %v, %v", said, all, err)
		}
	})
}
