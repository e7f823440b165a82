package door

// Bounds of connections for steps, which docs/wire.md names. Who has more to tell says it
// in several Steps.
const (
	// MaxStepBytes bounds one Step.
	MaxStepBytes = 4 << 20
	// MaxDecisionBytes bounds one Decision.
	MaxDecisionBytes = 4 << 20
	// MaxStepSequences is of how many sequences one Step tells.
	MaxStepSequences = 64 << 10
	// MaxTailTokens and MaxGeneratedTokens bound what comes with a sequence that has begun.
	MaxTailTokens      = 256
	MaxGeneratedTokens = 256 << 10
	// MaxMeasuring is how many processes of an engine may measure.
	MaxMeasuring = 64
	// MaxGovernedBlocks bounds an engine's blocks of KV memory, and MaxGovernedTokens the
	// tokens of one of them and of a step.
	MaxGovernedBlocks = 1 << 20
	MaxGovernedTokens = 16 << 20
	// MaxGovernedBlockBytes bounds what a block takes.
	MaxGovernedBlockBytes = 1 << 40
	// MaxSequenceIDBytes and MaxTenantBytes count of what a sequence is called, and of whose
	// it is.
	MaxSequenceIDBytes = 128
	MaxTenantBytes     = 64
)
