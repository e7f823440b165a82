package door

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"meridian/serve/door/doorpb"
)

// ErrNoStatus means that the agent is older than what was asked of it.
var ErrNoStatus = errors.New("door: this agent does not tell its status")

// Status is how an agent's door is.
type Status struct {
	Agent string
	// Connections and Engines are there now; Serving of the engines are complete.
	Connections, Engines, Serving int
}

// AskStatus asks an agent how its door is, as a client that is no engine. software
// is for the agent's log.
func AskStatus(ctx context.Context, socket, software string) (Status, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	l, err := dial(ctx, socket)
	if err != nil {
		return Status{}, fmt.Errorf("door: %s: %w", socket, err)
	}
	s, err := l.askStatus(ctx, software)
	if err = errors.Join(err, l.depart()); err != nil {
		return Status{}, fmt.Errorf("door: %s: %w", socket, err)
	}
	return s, nil
}

func (l *link) askStatus(ctx context.Context, software string) (Status, error) {
	welcome, err := l.greet(ctx, &doorpb.Hello{Software: software, As: &doorpb.Hello_Client{Client: &doorpb.Client{}}})
	if err != nil {
		return Status{}, err
	}
	if !slices.Contains(l.features, FeatureStatus) {
		return Status{}, ErrNoStatus
	}
	defer context.AfterFunc(ctx, l.interrupt)()
	if err := l.send(doorpb.FrameType_FRAME_TYPE_STATUS, &doorpb.Status{Request: 1}, nil); err != nil {
		return Status{}, err
	}
	var reply doorpb.Reply
	if err := l.expect(doorpb.FrameType_FRAME_TYPE_REPLY, &reply); err != nil {
		return Status{}, err
	}
	told := reply.GetStatus()
	return Status{Agent: welcome.GetAgent(), Connections: int(told.GetConnections()), Engines: int(told.GetEngines()), Serving: int(told.GetServing())}, nil
}
