// Package embedded runs an etcd of one member inside a process that does
// nothing else, for cells that have no etcd of their own.
//
//	state directory, 0700
//	  directory.lock   held for as long as the server lives
//	  directory.sock   where clients dial, unless Options say otherwise
//	  directory/       etcd's data: leases and records survive a restart
//
// After a restart every lease has its whole time again, however long the
// server was away: it cannot know who tried to renew.
//
// On a socket or on loopback it does not ask clients who they are: a client that reaches it is
// this user, or on this machine. Beyond that it speaks TLS 1.3 only, and only
// with those who have a certificate of the same CA.
package embedded

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/tlsutil"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"google.golang.org/grpc"

	"meridian/member/directory"
	"meridian/member/trust"
)

// DefaultQuotaBytes is far more than a cell's records need; the compactor
// keeps what they leave behind well below it.
const DefaultQuotaBytes = 128 << 20

const (
	memberName = "directory"
	// closeGrace is how long calls under way may take to finish at Close;
	// watches never finish, and find the next server by themselves.
	closeGrace = 250 * time.Millisecond
	// maxSocketPath is what fits into the kernel's socket address.
	maxSocketPath = 107
)

// etcd reserves two files of this size when it starts; the default of 64 MB is
// for loads that a directory never sees. It is the library's only knob for it.
func init() { wal.SegmentSizeBytes = 4 << 20 }

// Options configures Open.
type Options struct {
	// Dir is the state directory. It is made if it is missing, and refused if
	// others than its owner can enter it.
	Dir string
	// Listen is unix:///path, http://address:port on the loopback interface, or
	// https://address:port anywhere; "" means Endpoint(Dir). A port of 0 takes
	// any that is free.
	Listen string
	// TLS, for https, is the certificate that clients see, with the hosts that
	// they dial in it, and the CA that has signed theirs.
	TLS        trust.Files
	QuotaBytes int64
	Logger     *slog.Logger // nil: silence
}

// Endpoint is where a server of this state directory listens by default.
func Endpoint(dir string) string { return "unix://" + filepath.Join(dir, "directory.sock") }

// Server is a running directory.
type Server struct {
	etcd     *embed.Etcd
	endpoint string
	lock     *lock
	grpc     chan *grpc.Server // holds it from the moment it exists
	logs     *filter
	keeper   *compactor
	failed   chan error
	observed chan struct{} // closed when no goroutine waits for a failure any more
	closing  sync.Once
}

// Open starts the server and returns when it answers, or when ctx ends.
func Open(ctx context.Context, o Options) (*Server, error) {
	o, listen, err := o.checked()
	if err != nil {
		return nil, err
	}
	held, err := acquire(filepath.Join(o.Dir, "directory.lock"))
	if err != nil {
		return nil, err
	}
	s := &Server{
		lock: held, grpc: make(chan *grpc.Server, 1), logs: newFilter(o.Logger),
		failed: make(chan error, 1), observed: make(chan struct{}),
	}
	if err := s.start(ctx, o, listen); err != nil {
		return nil, errors.Join(err, held.release())
	}
	return s, nil
}

func (o Options) checked() (Options, *url.URL, error) {
	var err error
	if o.Dir == "" {
		return o, nil, refuse("", "there is no state directory", "name one that belongs to this user alone")
	}
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return o, nil, refuse(o.Dir, err.Error(), "name an absolute path")
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.QuotaBytes <= 0 {
		o.QuotaBytes = DefaultQuotaBytes
	}
	o.Listen = cmp.Or(o.Listen, Endpoint(o.Dir))
	listen, err := o.checkListen()
	if err != nil {
		return o, nil, err
	}
	return o, listen, makePrivate(o.Dir)
}

func refuse(key, problem, hint string) error {
	return &directory.Error{Op: "open directory server", Subject: key, Err: directory.Because(directory.ErrInvalid, errors.New(problem)), Hint: hint}
}

// checkListen lets nothing but this machine in, unless certificates say who
// comes.
func (o Options) checkListen() (*url.URL, error) {
	u, err := url.Parse(o.Listen)
	switch {
	case err != nil:
		return nil, refuse(o.Listen, err.Error(), "write it as a URL")
	case u.Scheme == "unix" && u.Host == "" && filepath.IsAbs(u.Path):
		if len(u.Path) > maxSocketPath {
			return nil, refuse(u.Path, fmt.Sprintf("a socket's path has at most %d bytes, this has %d", maxSocketPath, len(u.Path)), "use a shorter state directory")
		}
		return u, nil
	case u.Scheme == "http" && net.ParseIP(u.Hostname()).IsLoopback() && u.Port() != "":
		return u, nil
	case u.Scheme == "https" && net.ParseIP(u.Hostname()) != nil && u.Port() != "":
		return u, checkCertificate(o.TLS)
	}
	return nil, refuse(o.Listen, "it is neither a Unix socket nor a loopback address, and has no TLS", "use unix:///path, http://127.0.0.1:port or https://address:port")
}

// checkCertificate finds what clients would, so that it is known at the start.
func checkCertificate(f trust.Files) error {
	if f == (trust.Files{}) {
		return refuse("", "there is no certificate for https", "give the files of one")
	}
	if _, err := trust.Open(trust.Options{Files: f}); err != nil {
		return &directory.Error{Op: "open directory server", Err: err}
	}
	chain, err := trust.ReadCertificates(f.Cert)
	if err != nil {
		return &directory.Error{Op: "open directory server", Err: err}
	}
	if len(trust.Describe(chain[0]).Hosts) == 0 {
		return refuse(f.Cert, "the certificate names no host, so no client would take it for the directory's",
			"issue it with the hosts that clients dial: `meridian cert issue NAME --host HOST --renew`")
	}
	return nil
}

func makePrivate(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return &directory.Error{Op: "open directory server", Subject: dir, Err: err, Hint: "choose a state directory that this user can make"}
	}
	info, err := os.Stat(dir)
	if err != nil {
		return &directory.Error{Op: "open directory server", Subject: dir, Err: err}
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return refuse(dir, fmt.Sprintf("others can enter it: its mode is %04o", mode), "chmod 700 it")
	}
	return nil
}

func (s *Server) start(ctx context.Context, o Options, listen *url.URL) error {
	e, err := embed.StartEtcd(s.configure(o, listen))
	if err != nil {
		return &directory.Error{Op: "open directory server", Subject: o.Dir, Err: err, Hint: "if its data is damaged, move " + filepath.Join(o.Dir, memberName) + " away: owners put their records back"}
	}
	s.etcd = e
	select {
	case <-e.Server.ReadyNotify():
	case err = <-e.Err():
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		s.logs.closing.Store(true)
		e.Close()
		return &directory.Error{Op: "open directory server", Subject: o.Dir, Err: err}
	}
	s.endpoint = listen.String()
	if listen.Scheme != "unix" {
		s.endpoint = listen.Scheme + "://" + e.Clients[0].Addr().String()
	}
	s.keeper = startCompactor(e.Server, o.QuotaBytes, o.Logger)
	go s.observe()
	return nil
}

// configure turns off what a directory of one does not need: peers, HTTP
// gateways, and logs of large histories.
func (s *Server) configure(o Options, listen *url.URL) *embed.Config {
	c := embed.NewConfig()
	c.Name, c.Dir = memberName, filepath.Join(o.Dir, memberName)
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{*listen}, []url.URL{*listen}
	if listen.Scheme == "https" {
		c.ClientTLSInfo = transport.TLSInfo{CertFile: o.TLS.Cert, KeyFile: o.TLS.Key, TrustedCAFile: o.TLS.CA, ClientCertAuth: true}
		c.TlsMinVersion = string(tlsutil.TLSVersion13) // what ClientTLSInfo says of it is overwritten
	}
	noPeers := url.URL{Scheme: "http", Host: "localhost:0"}
	c.ListenPeerUrls, c.AdvertisePeerUrls = nil, []url.URL{noPeers}
	c.InitialCluster = memberName + "=" + noPeers.String()
	// Fresh data is another directory, and clients must be able to tell.
	c.InitialClusterToken = rand.Text()
	// The shortest lease is 1.5 elections, rounded up to a second.
	c.TickMs, c.ElectionMs = 100, 500
	c.SnapshotCount, c.SnapshotCatchUpEntries = 1000, 100
	c.MaxWalFiles, c.MaxSnapFiles = 2, 2
	c.QuotaBackendBytes = o.QuotaBytes
	c.AutoCompactionRetention = "0" // the compactor does it
	c.EnableGRPCGateway = false
	c.CORS = nil
	c.HostWhitelist = map[string]struct{}{"localhost": {}, "127.0.0.1": {}, "::1": {}}
	c.ServiceRegister = func(g *grpc.Server) { s.grpc <- g }
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(s.logs.zap())
	return c
}

// observe passes on why the server stopped, if it did so by itself.
func (s *Server) observe() {
	defer close(s.observed)
	err := errors.New("etcd has stopped")
	select {
	case err = <-s.etcd.Err():
	case <-s.etcd.Server.StopNotify():
	}
	if !s.logs.closing.Load() {
		s.failed <- &directory.Error{Op: "serve directory", Subject: s.endpoint, Err: err, Hint: "restart it: leases and records are kept"}
	}
}

// Endpoint is where clients dial.
func (s *Server) Endpoint() string { return s.endpoint }

// Failed yields the reason when the server stops by itself.
func (s *Server) Failed() <-chan error { return s.failed }

// Close stops the server. Calls under way get a moment, or until ctx ends.
func (s *Server) Close(ctx context.Context) (err error) {
	s.closing.Do(func() {
		s.keeper.stop()
		s.logs.closing.Store(true)
		grace, cancel := context.WithTimeout(ctx, closeGrace)
		defer cancel()
		stop := context.AfterFunc(grace, func() {
			select {
			case g := <-s.grpc:
				g.Stop()
			default: // it has not begun to serve
			}
		})
		defer stop()
		s.etcd.Close()
		<-s.observed
		err = s.lock.release()
	})
	return err
}
