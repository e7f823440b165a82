package etcd

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
)

// readyPatience is how long a call waits for a connection before it asks
// without one. It hides the restart of a server; beyond that the caller should
// know, and why.
const readyPatience = time.Second

// dialOptions replace the library's way with an absent server, which is to
// wait for it without saying so until the caller's patience ends.
func dialOptions(dialTimeout time.Duration) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithConnectParams(grpc.ConnectParams{
			// A directory that is back must be found well within a lease.
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond},
			MinConnectTimeout: dialTimeout,
		}),
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, request, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
			awaitReady(ctx, cc)
			return invoke(ctx, method, request, reply, cc, append(o, grpc.WaitForReady(false))...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
			awaitReady(ctx, cc)
			return open(ctx, d, cc, method, append(o, grpc.WaitForReady(false))...)
		}),
	}
}

func awaitReady(ctx context.Context, cc *grpc.ClientConn) {
	if cc.GetState() == connectivity.Ready {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, readyPatience)
	defer cancel()
	for {
		state := cc.GetState()
		if state == connectivity.Idle {
			cc.Connect()
		}
		if state == connectivity.Ready || state == connectivity.Shutdown || !cc.WaitForStateChange(ctx, state) {
			return
		}
	}
}
