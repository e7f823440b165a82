package door

import (
	"fmt"
	"slices"
)

// Version is what this build speaks, and OldestVersion what it still understands.
const (
	Version       = 1
	OldestVersion = 1
)

// agreedVersion is the highest that both sides speak; false means that there is
// none.
func agreedVersion(low, high uint32) (uint32, bool) {
	version := min(high, Version)
	return version, version >= max(low, OldestVersion)
}

// What a side can do beyond its version. Both know what the other can: Hello
// names the client's, Welcome those of them that the agent has, too.
const (
	// FeatureRefusals: a frame that the agent does not know is refused by a reply
	// and ends nothing. Agents without it fence an engine that sends one.
	FeatureRefusals = "refusals"
	// FeatureStatus: Status is answered.
	FeatureStatus = "status"
	// FeatureStore: Store is answered. Only agents with an object cache have it.
	FeatureStore = "store"
	// FeatureCache: Keep and Find are answered. Only agents have it that keep
	// prefixes.
	FeatureCache = "cache"
	// FeatureChunks: Progress may be of a prompt's first tokens alone. An agent without
	// it would take their layers for those of all tokens, so it is not told.
	FeatureChunks = "chunks"
	// FeatureSteps: an engine may tell of its steps, and is governed. Only agents with a
	// governor have it.
	FeatureSteps = "steps"
)

// Features are those of this build.
var Features = []string{FeatureRefusals, FeatureStatus, FeatureStore, FeatureCache, FeatureChunks, FeatureSteps}

const (
	maxFeatures     = 64
	maxFeatureBytes = 64
)

// Agree finds what a client and this build have in common, of the versions and
// features that the client names.
func Agree(low, high uint32, features []string) (version uint32, common []string, p *Problem) {
	version, ok := agreedVersion(low, high)
	if !ok {
		return 0, nil, &Problem{Code: CodeVersion, Message: fmt.Sprintf("the client speaks versions %d to %d, this agent %d to %d", low, high, OldestVersion, Version)}
	}
	if len(features) > maxFeatures {
		return 0, nil, &Problem{Code: CodeTerms, Message: fmt.Sprintf("Hello names %d features, at most %d", len(features), maxFeatures)}
	}
	for _, f := range features {
		if f == "" || len(f) > maxFeatureBytes {
			return 0, nil, &Problem{Code: CodeTerms, Message: fmt.Sprintf("the feature %.80q has %d bytes; there are 1 to %d", f, len(f), maxFeatureBytes)}
		}
	}
	return version, commonFeatures(features), nil
}

// commonFeatures are those of this build that the other side names.
func commonFeatures(theirs []string) (common []string) {
	for _, f := range Features {
		if slices.Contains(theirs, f) {
			common = append(common, f)
		}
	}
	return common
}
