package store

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"testing"
	"time"
)

// TestRedisSpeaks compares what the client says, byte by byte, with the protocol,
// and gives it the answers of a server.
func TestRedisSpeaks(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	talk := []struct{ hears, says string }{
		{"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\na\r\n\x00\r\n", "+OK\r\n"},
		{"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", "$4\r\na\r\n\x00\r\n"},
		{"*2\r\n$3\r\nGET\r\n$1\r\nx\r\n", "$-1\r\n"},
		{"*2\r\n$3\r\nDEL\r\n$1\r\nk\r\n", ":1\r\n"},
		{"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nb\r\n", "-OOM command not allowed\r\n"},
	}
	served := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			served <- err
			return
		}
		defer conn.Close()
		in := bufio.NewReader(conn)
		for _, turn := range talk {
			heard := make([]byte, len(turn.hears))
			if _, err := io.ReadFull(in, heard); err != nil || string(heard) != turn.hears {
				t.Errorf("heard %q (%v), want %q", heard, err, turn.hears)
			}
			if _, err := io.WriteString(conn, turn.says); err != nil {
				t.Error(err)
			}
		}
		served <- nil
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client, err := dialRedis(ctx, "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	value, into := []byte("a\r\n\x00"), make([]byte, 4)
	if err := client.Put(ctx, "k", value); err != nil {
		t.Error(err)
	}
	if n, err := client.Get(ctx, "k", into); err != nil || n != 4 || !bytes.Equal(into, value) {
		t.Errorf("%d, %q, %v", n, into, err)
	}
	if _, err := client.Get(ctx, "x", into); err == nil {
		t.Error("a missing object was got")
	}
	if err := client.Remove(ctx, "k"); err != nil {
		t.Error(err)
	}
	if err := client.Put(ctx, "k", []byte("b")); err == nil {
		t.Error("a refused put was done")
	}
	if err := client.Close(ctx); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}
