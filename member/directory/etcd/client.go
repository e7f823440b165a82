package etcd

import (
	"context"
	"errors"
	"math"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"meridian/member/directory"
)

// client is the Backend.
type client struct {
	etcd      *clientv3.Client
	leases    pb.LeaseClient
	namespace string // with its slash
	pulse     *healthCheck
}

func (c *client) Get(ctx context.Context, key string) (directory.Record, error) {
	response, err := c.etcd.Get(ctx, c.namespace+key)
	if err != nil {
		return directory.Record{}, classify(err)
	}
	if len(response.Kvs) == 0 {
		return directory.Record{}, directory.ErrNotFound
	}
	return c.record(response.Kvs[0]), nil
}

func (c *client) record(kv *mvccpb.KeyValue) directory.Record {
	return directory.Record{
		Key:      strings.TrimPrefix(string(kv.Key), c.namespace),
		Value:    kv.Value,
		Revision: directory.Revision(kv.ModRevision),
		Lease:    directory.LeaseID(kv.Lease),
	}
}

func (c *client) List(ctx context.Context, prefix string) (directory.Snapshot, error) {
	response, err := c.etcd.Get(ctx, c.namespace+prefix, clientv3.WithPrefix()) // sorted by key
	if err != nil {
		return directory.Snapshot{}, classify(err)
	}
	snapshot := directory.Snapshot{Revision: directory.Revision(response.Header.Revision)}
	for _, kv := range response.Kvs {
		snapshot.Records = append(snapshot.Records, c.record(kv))
	}
	return snapshot, nil
}

func (c *client) Write(ctx context.Context, change directory.Change) (directory.Record, error) {
	key := c.namespace + change.Key
	operation := clientv3.OpPut(key, string(change.Value), clientv3.WithLease(clientv3.LeaseID(change.Lease)))
	if change.Delete {
		operation = clientv3.OpDelete(key)
	}
	// An etcd revision of 0 is no record.
	var condition []clientv3.Cmp
	switch {
	case change.At == directory.Absent:
		condition = append(condition, clientv3.Compare(clientv3.ModRevision(key), "=", 0))
	case change.At > 0:
		condition = append(condition, clientv3.Compare(clientv3.ModRevision(key), "=", int64(change.At)))
	case change.Delete:
		condition = append(condition, clientv3.Compare(clientv3.ModRevision(key), ">", 0))
	}
	instead := []clientv3.Op{clientv3.OpGet(key)}
	if change.While != (directory.Guard{}) {
		guard := c.namespace + change.While.Key
		condition = append(condition, clientv3.Compare(clientv3.ModRevision(guard), "=", int64(change.While.Revision)))
		instead = append(instead, clientv3.OpGet(guard, clientv3.WithKeysOnly()))
	}
	response, err := c.etcd.Txn(ctx).If(condition...).Then(operation).Else(instead...).Commit()
	if err != nil {
		return directory.Record{}, classify(err)
	}
	if response.Succeeded {
		written := directory.Record{Key: change.Key, Revision: directory.Revision(response.Header.Revision)}
		if !change.Delete {
			written.Value, written.Lease = change.Value, change.Lease
		}
		return written, nil
	}
	var standing directory.Record
	if found := response.Responses[0].GetResponseRange().Kvs; len(found) > 0 {
		standing = c.record(found[0])
	}
	if len(instead) > 1 {
		guard := response.Responses[1].GetResponseRange().Kvs
		if len(guard) == 0 || guard[0].ModRevision != int64(change.While.Revision) {
			return standing, directory.ErrDeposed
		}
	}
	switch {
	case change.Delete && standing.Key == "":
		return standing, directory.ErrNotFound
	case change.At == directory.Absent:
		return standing, directory.ErrExists
	}
	return standing, directory.ErrChanged
}

func (c *client) Watch(ctx context.Context, prefix string, after directory.Revision, emit func([]directory.Event) error) error {
	ctx, detach := c.pulse.attach(ctx)
	defer detach()
	responses := c.etcd.Watch(clientv3.WithRequireLeader(ctx), c.namespace+prefix,
		clientv3.WithPrefix(), clientv3.WithRev(int64(after)+1), clientv3.WithCreatedNotify())
	for response := range responses {
		switch {
		case response.CompactRevision != 0:
			return directory.ErrCompacted
		case response.Err() != nil:
			return classify(response.Err())
		case response.Created && directory.Revision(response.Header.Revision) < after:
			return directory.ErrCompacted // another directory, which has not come so far
		case response.Created:
			c.pulse.saw(clusterState{cluster: response.Header.ClusterId, revision: response.Header.Revision})
			continue
		case len(response.Events) == 0:
			continue
		}
		if err := emit(c.events(response.Events)); err != nil {
			return err
		}
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return directory.Because(directory.ErrUnavailable, errors.New("the stream ended"))
}

func (c *client) events(found []*clientv3.Event) []directory.Event {
	events := make([]directory.Event, len(found))
	for i, e := range found {
		kind := directory.Put
		if e.Type == clientv3.EventTypeDelete {
			kind = directory.Delete
		}
		record := c.record(e.Kv)
		events[i] = directory.Event{Kind: kind, Revision: record.Revision, Record: record}
	}
	return events
}

func (c *client) Grant(ctx context.Context, ttl time.Duration) (directory.LeaseID, time.Duration, error) {
	response, err := c.etcd.Grant(ctx, int64(math.Ceil(ttl.Seconds())))
	if err != nil {
		return 0, 0, classify(err)
	}
	return directory.LeaseID(response.ID), time.Duration(response.TTL) * time.Second, nil
}

// Renew speaks the protocol itself: the client library repeats a renewal
// without a pause for as long as the server is away.
func (c *client) Renew(ctx context.Context, id directory.LeaseID) (time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream
	stream, err := c.leases.LeaseKeepAlive(ctx)
	if err != nil {
		return 0, classify(err)
	}
	// A failed Send shows its reason in Recv.
	_ = stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)})
	response, err := stream.Recv()
	switch {
	case err != nil:
		return 0, classify(err)
	case response.TTL <= 0:
		return 0, directory.ErrLeaseLost
	}
	return time.Duration(response.TTL) * time.Second, nil
}

func (c *client) Revoke(ctx context.Context, id directory.LeaseID) error {
	_, err := c.etcd.Revoke(ctx, clientv3.LeaseID(id))
	return classify(err)
}

func (c *client) beat(ctx context.Context) (clusterState, error) {
	response, err := c.etcd.Get(ctx, c.namespace, clientv3.WithCountOnly())
	if err != nil {
		return clusterState{}, classify(err)
	}
	return clusterState{cluster: response.Header.ClusterId, revision: response.Header.Revision}, nil
}

func (c *client) Close(context.Context) error {
	c.pulse.stop()
	if err := c.etcd.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return &directory.Error{Op: "close etcd", Err: err}
	}
	return nil
}

// classify names an error in the words of meta. What a context says stays as
// it is: whose context it was is known further up.
func classify(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	err = rpctypes.Error(err)
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return directory.ErrLeaseLost
	case errors.Is(err, rpctypes.ErrCompacted):
		return directory.ErrCompacted
	case errors.Is(err, rpctypes.ErrNoSpace):
		return directory.ErrFull
	}
	code := status.Code(err)
	var named rpctypes.EtcdError
	if errors.As(err, &named) {
		code = named.Code()
	}
	switch code {
	case codes.Canceled:
		return context.Canceled
	case codes.DeadlineExceeded:
		return context.DeadlineExceeded
	case codes.Unavailable:
		return directory.Because(directory.ErrUnavailable, errors.New(status.Convert(err).Message()))
	}
	return err
}
