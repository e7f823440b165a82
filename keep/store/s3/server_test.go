package s3

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"go.uber.org/goleak"

	"meridian/internal/require"
	"meridian/internal/until"
)

var gateway string // where the server of these tests listens; "": there is none

const (
	access, secret = "meridian", "meridian-secret"
	bucketName     = "cache"
	versitygw      = "../../../.peers/versitygw/versitygw"
)

func TestMain(m *testing.M) {
	stop := startGateway()
	code := m.Run()
	stop()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Println(err)
			code = 1
		}
	}
	os.Exit(code)
}

// startGateway runs an S3 server on a folder, if there is one to run.
func startGateway() (stop func()) {
	program, err := filepath.Abs(versitygw)
	if err != nil {
		return func() {}
	}
	if _, err := os.Stat(program); err != nil {
		return func() {}
	}
	dir, err := os.MkdirTemp("", "s3")
	if err != nil {
		return func() {}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return func() {}
	}
	address := listener.Addr().String()
	_ = listener.Close()
	command := exec.Command(program, "--port", address, "--access", access, "--secret", secret, "posix", dir)
	if err := command.Start(); err != nil {
		return func() {}
	}
	gateway = address
	return func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		_ = os.RemoveAll(dir)
	}
}

// server is an S3 server with a bucket of its own, behind a proxy that can be bad.
type server struct {
	address, bucket string
	// What it does to a request; nil: nothing.
	trouble atomic.Pointer[func(w http.ResponseWriter, r *http.Request) (answered bool)]
	// What it does to the bytes of an answer.
	change atomic.Pointer[func(r *http.Request, body []byte) []byte]
}

var buckets atomic.Int64

func newServer(t *testing.T) *server {
	t.Helper()
	require.Reads(t, versitygw) // TestMain did, which Go does not see
	if gateway == "" {
		require.Skip(t, "versitygw", "no program in .peers/versitygw; run make peers")
	}
	s := &server{bucket: fmt.Sprint(bucketName, buckets.Add(1))}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: gateway})
			r.Out.Host = r.In.Host // it is signed
		},
		ModifyResponse: func(r *http.Response) error {
			if change := s.change.Load(); change != nil {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					return err
				}
				r.Body = io.NopCloser(bytes.NewReader((*change)(r.Request, body)))
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if trouble := s.trouble.Load(); trouble != nil && (*trouble)(w, r) {
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	s.address = front.Listener.Addr().String()
	client := s.client(t)
	until.Well(t, "the S3 server answers", func() string {
		if err := client.MakeBucket(t.Context(), s.bucket, minio.MakeBucketOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
	return s
}

// client is one that meddles.
func (s *server) client(t *testing.T) *minio.Client {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client, err := minio.New(s.address, &minio.Options{Creds: credentials.NewStaticV4(access, secret, ""), Transport: transport, MaxRetries: 1})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func (s *server) options() Options {
	return Options{
		Endpoint: s.address, Bucket: s.bucket, Prefix: "a/cell", AccessKey: access, SecretKey: secret, Region: "us-east-1",
		Bytes: 16 << 20, SegmentBytes: 2 << 20, Linger: 50 * time.Millisecond, Refresh: time.Hour,
	}
}

func open(t testing.TB, o Options) *Bucket {
	t.Helper()
	b, err := Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func shut(t testing.TB, b *Bucket) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := b.Close(ctx); err != nil {
		t.Error(err)
	}
}
