package store

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"strings"

	"meridian/prove/bench"
)

// openRedis starts a redis-server that keeps everything in memory and writes
// nothing. On one host it is asked over a Unix socket, else over loopback.
func openRedis(ctx context.Context, o Options, where string) (_ contender, err error) {
	var opened bench.Opened
	defer opened.Unless(ctx, &err)
	dir, err := opened.Folder(o.Dir)
	if err != nil {
		return nil, err
	}
	network, address := "unix", filepath.Join(dir, "redis")
	command := []string{"redis-server", "--save", "", "--appendonly", "no", "--dir", dir, "--logfile", filepath.Join(dir, "log")}
	if where == sameHost {
		command = append(command, "--port", "0", "--unixsocket", address)
	} else {
		port, err := bench.FreePort(ctx)
		if err != nil {
			return nil, err
		}
		network, address = "tcp", net.JoinHostPort("127.0.0.1", port)
		command = append(command, "--port", port, "--bind", "127.0.0.1")
	}
	server, err := opened.Server("redis-server", command, nil)
	if err != nil {
		return nil, err
	}
	s := &caches{
		title: "redis", others: []int{server.PID()}, stop: opened.Close,
		client: func(ctx context.Context) (Cache, error) { return dialRedis(ctx, network, address) },
	}
	err = server.Listens(ctx, func(ctx context.Context) error {
		client, err := s.client(ctx)
		if err == nil {
			err = client.Close(ctx)
		}
		return err
	})
	return s, err
}

// redisClient speaks as much of Redis's protocol (RESP2) as is measured.
type redisClient struct {
	conn net.Conn
	in   *bufio.Reader
}

func dialRedis(ctx context.Context, network, address string) (*redisClient, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &redisClient{conn: conn, in: bufio.NewReaderSize(conn, 64<<10)}, nil
}

func (r *redisClient) Buffer(bytes uint64) ([]byte, error) { return make([]byte, bytes), nil }

// command sends words of which the last may be long: its bytes are not copied.
func (r *redisClient) command(ctx context.Context, words ...[]byte) error {
	deadline, _ := ctx.Deadline()
	_ = r.conn.SetDeadline(deadline)
	last := words[len(words)-1]
	head := fmt.Appendf(nil, "*%d\r\n", len(words))
	for _, word := range words[:len(words)-1] {
		head = fmt.Appendf(head, "$%d\r\n%s\r\n", len(word), word)
	}
	buffers := net.Buffers{fmt.Appendf(head, "$%d\r\n", len(last)), last, []byte("\r\n")}
	_, err := buffers.WriteTo(r.conn)
	return err
}

// line reads one line of an answer and refuses an error.
func (r *redisClient) line() (string, error) {
	text, err := r.in.ReadString('\n')
	if err != nil {
		return "", err
	}
	text = strings.TrimRight(text, "\r\n")
	if text == "" || text[0] == '-' {
		return "", fmt.Errorf("redis: %q", text)
	}
	return text, nil
}

func (r *redisClient) Put(ctx context.Context, key string, value []byte) error {
	if err := r.command(ctx, []byte("SET"), []byte(key), value); err != nil {
		return err
	}
	said, err := r.line()
	if err == nil && said != "+OK" {
		err = fmt.Errorf("redis: SET: %q", said)
	}
	return err
}

func (r *redisClient) Get(ctx context.Context, key string, into []byte) (int, error) {
	if err := r.command(ctx, []byte("GET"), []byte(key)); err != nil {
		return 0, err
	}
	said, err := r.line()
	if err != nil {
		return 0, err
	}
	length, err := strconv.Atoi(strings.TrimPrefix(said, "$"))
	if err != nil || length < 0 || length > len(into) {
		return 0, fmt.Errorf("redis: GET: %q, room for %d bytes", said, len(into))
	}
	if _, err := io.ReadFull(r.in, into[:length]); err != nil {
		return 0, err
	}
	_, err = r.in.Discard(len("\r\n"))
	return length, err
}

func (r *redisClient) Remove(ctx context.Context, key string) error {
	if err := r.command(ctx, []byte("DEL"), []byte(key)); err != nil {
		return err
	}
	said, err := r.line()
	if err == nil && said != ":1" {
		err = fmt.Errorf("redis: DEL: %q", said)
	}
	return err
}

func (r *redisClient) Close(context.Context) error { return r.conn.Close() }
