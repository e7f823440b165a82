// Package etcd is the directory kept by etcd. It only dials: the server is a
// process of its own, the one of package embedded or a cluster that others
// run.
//
//	Directory ──► client ──┬── calls ───────────────► etcd
//	                       ├── one stream, many watches ◄──
//	                       └── pulse: asks every second while there are
//	                           watches, and ends them when there is no answer
//	                           or another directory answers
package etcd

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"meridian/member/directory"
)

// What Options mean when they say nothing.
const (
	DefaultNamespace   = "meridian"
	DefaultDialTimeout = 3 * time.Second
)

// A connection that is silent for this long is asked whether it still lives,
// so that one which a firewall dropped is replaced.
const (
	keepAliveAfter   = 10 * time.Second
	keepAliveTimeout = 10 * time.Second // this process may stand still for a few
)

// attempts is how often a read asks before it fails.
const attempts = 2

// Options configures Open.
type Options struct {
	// Endpoints are unix:///path, http://host:port or https://host:port.
	Endpoints []string
	TLS       *tls.Config // for https
	// Namespace is a key that goes before every other, so that cells can share
	// an etcd; "" means DefaultNamespace.
	Namespace   string
	DialTimeout time.Duration // of one attempt to connect
	CallTimeout time.Duration // 0: directory.DefaultCallTimeout
}

func (o Options) checked() (Options, error) {
	refuse := func(key, problem, hint string) error {
		return &directory.Error{Op: "open etcd", Subject: key, Err: directory.Because(directory.ErrInvalid, errors.New(problem)), Hint: hint}
	}
	if len(o.Endpoints) == 0 {
		return o, refuse("", "there are no endpoints", "name one: unix:///path, http://host:port or https://host:port")
	}
	for _, endpoint := range o.Endpoints {
		u, err := url.Parse(endpoint)
		switch {
		case err != nil:
			return o, refuse(endpoint, err.Error(), "write it as a URL")
		case u.Scheme == "unix" && (u.Host != "" || u.Path == ""):
			return o, refuse(endpoint, "that is not an absolute path", "write unix:///path with three slashes")
		case u.Scheme == "https" && o.TLS == nil:
			return o, refuse(endpoint, "there are no TLS settings for it", "give the certificates of this directory")
		case u.Scheme == "unix":
		case u.Scheme != "http" && u.Scheme != "https", u.Port() == "":
			return o, refuse(endpoint, "that is no endpoint", "use unix:///path, http://host:port or https://host:port")
		}
	}
	o.Namespace = cmp.Or(o.Namespace, DefaultNamespace)
	if err := directory.CheckKey(o.Namespace); err != nil {
		return o, fmt.Errorf("namespace: %w", err)
	}
	if o.DialTimeout <= 0 {
		o.DialTimeout = DefaultDialTimeout
	}
	return o, nil
}

// Open makes a directory of an etcd. It does not wait for it: one that is away
// is unknown, and the calls and watches that follow say so.
func Open(_ context.Context, o Options) (directory.Directory, error) {
	o, err := o.checked()
	if err != nil {
		return nil, err
	}
	etcd, err := clientv3.New(clientv3.Config{
		Endpoints: o.Endpoints, TLS: o.TLS, DialTimeout: o.DialTimeout,
		DialKeepAliveTime: keepAliveAfter, DialKeepAliveTimeout: keepAliveTimeout,
		MaxUnaryRetries: attempts,
		Logger:          zap.NewNop(), // what goes wrong comes back as an error or an event
		DialOptions:     dialOptions(o.DialTimeout),
	})
	if err != nil {
		return nil, &directory.Error{Op: "open etcd", Err: err, Hint: "check the endpoints and the certificates"}
	}
	c := &client{etcd: etcd, leases: pb.NewLeaseClient(etcd.ActiveConnection()), namespace: o.Namespace + "/"}
	c.pulse = startHealthCheck(c.beat)
	return directory.New(directory.Options{Backend: c, CallTimeout: o.CallTimeout})
}
