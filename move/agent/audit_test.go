package agent_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"meridian/move/agent"
	"meridian/move/fabric"
)

// standingClock is one that goes on when it is told to.
type standingClock struct {
	fabric.Clock
	at time.Time
}

func (c *standingClock) Now() time.Time { return c.at }

// A peer whose messages cannot be read fills no log.
func TestUnreadableMessagesAreFewLines(t *testing.T) {
	var log bytes.Buffer
	clock := &standingClock{fabric.SystemClock, time.Now()}
	a := start(t, agent.Options{Name: "a", Clock: clock, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	hear := func() {
		a.Unreadable(fabric.Notification{From: "b", Payload: []byte("MRDS and more")}, errors.New("odd"))
	}
	for range 1000 {
		hear()
	}
	clock.at = clock.at.Add(time.Second)
	hear()
	if n := strings.Count(log.String(), "cannot be read"); n != 11 || !strings.Contains(log.String(), "not_logged_before=990") || strings.Contains(log.String(), "more") {
		t.Errorf("%d lines: %s", n, log.String())
	}
}
