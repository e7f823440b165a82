package node

import (
	"net/http"
	"sync/atomic"
	"time"

	"meridian/serve/door/doorpb"
	"meridian/serve/doorserver"
	"meridian/serve/governing"
)

// openGovernor has governors for the engines that come in at the door, once it is opened.
func (n *Agent) openGovernor(o *governing.Options, opened *atomic.Pointer[doorserver.Server]) (doorserver.Governor, error) {
	if o == nil {
		return nil, nil
	}
	with := *o
	with.Store = n.Store != nil
	with.Now = time.Now
	with.BlockBytes = func(engine string) int64 {
		if door := opened.Load(); door != nil {
			return door.BlockBytes(engine)
		}
		return 0
	}
	var err error
	if n.Governors, err = governing.New(with); err != nil {
		return nil, err
	}
	return governors{n.Governors}, nil
}

// governors are those of the engines, as the door reaches them.
type governors struct{ *governing.Governors }

func (g governors) Govern(engine string, about *doorpb.Steps) (doorserver.Governed, error) {
	c, err := g.Governors.Govern(engine, about)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// replyPhases tells of the engines that are governed, and of their requests.
func (n *Agent) replyPhases(w http.ResponseWriter, _ *http.Request) {
	engines := []governing.Engine{}
	if n.Governors != nil {
		engines = n.Governors.Engines()
	}
	reply(w, engines)
}
