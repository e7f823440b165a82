package doctor

import (
	"fmt"
	"strings"
)

// Tier is a place below memory where an agent that runs here keeps objects. Problem is why it
// is not used now; "": it is.
type Tier struct {
	Agent, Name, Problem string
}

func tiers(p *boundedHost) finding {
	all, err := p.host.Tiers(p.ctx)
	var work, fail []string
	for _, t := range all {
		if name := fmt.Sprintf("%s of %s", t.Name, t.Agent); t.Problem == "" {
			work = append(work, name)
		} else {
			fail = append(fail, name+": "+t.Problem)
		}
	}
	if err != nil {
		fail = append(fail, err.Error())
	}
	switch {
	case len(fail) > 0:
		return warn(strings.Join(append(fail, work...), "; "), "The agent serves without it, and uses it when it can. Mend what is said, and look again:\n"+
			"    meridian store stat\n    meridian logs")
	case len(work) > 0:
		return ok(strings.Join(work, "; "))
	default:
		return absent("no agent that runs here keeps objects on disk or in S3", "")
	}
}
