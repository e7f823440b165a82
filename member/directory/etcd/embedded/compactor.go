package embedded

import (
	"context"
	"errors"
	"log/slog"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
)

const (
	tidyInterval = 5 * time.Second
	tidyTimeout  = 10 * time.Second
	// keptRevisions is the history that watchers can resume from; one that is
	// further behind gets a resync.
	keptRevisions = 1000
)

// compactor lets old history go, and its space. An etcd whose file reaches
// the quota refuses every write until an operator has made room and said so; here
// the compactor does both.
type compactor struct {
	server *etcdserver.EtcdServer
	quota  int64
	logger *slog.Logger
	cancel context.CancelFunc
	done   chan struct{}
}

func startCompactor(server *etcdserver.EtcdServer, quota int64, logger *slog.Logger) *compactor {
	life, cancel := context.WithCancel(context.Background())
	h := &compactor{server: server, quota: quota, logger: logger, cancel: cancel, done: make(chan struct{})}
	go h.run(life)
	return h
}

func (h *compactor) stop() {
	h.cancel()
	<-h.done
}

func (h *compactor) run(life context.Context) {
	defer close(h.done)
	rounds := time.NewTicker(tidyInterval)
	defer rounds.Stop()
	for {
		select {
		case <-rounds.C:
		case <-life.Done():
			return
		}
		ctx, cancel := context.WithTimeout(life, tidyTimeout)
		if err := h.tidy(ctx); err != nil && life.Err() == nil {
			h.logger.Warn("the directory could not be tidied", "error", err)
		}
		cancel()
	}
}

func (h *compactor) tidy(ctx context.Context) error {
	size := h.server.Backend().Size()
	alarms := h.spaceAlarms()
	if size < h.quota/2 && len(alarms) == 0 {
		return h.forget(ctx, keptRevisions, keptRevisions)
	}
	if err := h.forget(ctx, 0, 1); err != nil {
		return err
	}
	// What is in use counts pages that a reader has not let go of yet; a full
	// directory does not wait for that.
	if used := h.server.Backend().SizeInUse(); len(alarms) > 0 || size >= h.quota || size-used > h.quota/8 {
		if err := h.server.Backend().Defrag(); err != nil {
			return err
		}
		h.logger.Info("the directory was tidied", "bytes_before", size, "bytes_after", h.server.Backend().Size())
	}
	if size = h.server.Backend().Size(); size >= h.quota {
		h.logger.Error("the directory is full", "bytes", size, "quota_bytes", h.quota)
		return nil
	}
	for _, alarm := range alarms {
		if _, err := h.server.Alarm(ctx, &pb.AlarmRequest{
			Action: pb.AlarmRequest_DEACTIVATE, MemberID: alarm.MemberID, Alarm: alarm.Alarm,
		}); err != nil {
			return err
		}
	}
	return nil
}

// forget drops the history but for the newest revisions, once that is worth
// the trouble.
func (h *compactor) forget(ctx context.Context, keep, worth int64) error {
	upTo := h.server.KV().Rev() - keep
	if upTo-h.server.KV().FirstRev() < worth {
		return nil
	}
	_, err := h.server.Compact(ctx, &pb.CompactionRequest{Revision: upTo, Physical: true})
	if errors.Is(err, mvcc.ErrCompacted) {
		return nil
	}
	return err
}

// spaceAlarms are the ones that making room answers; a corrupt directory
// stays marked so.
func (h *compactor) spaceAlarms() []*pb.AlarmMember {
	var found []*pb.AlarmMember
	for _, alarm := range h.server.Alarms() {
		if alarm.Alarm == pb.AlarmType_NOSPACE {
			found = append(found, alarm)
		}
	}
	return found
}
