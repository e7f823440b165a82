package mrdn

import "errors"

var verdicts = map[string]error{
	"truncated": ErrTruncated, "magic": ErrMagic, "version": ErrVersion, "pad": ErrPad,
	"tier": ErrTier, "too_large": ErrTooLarge, "checksum": ErrChecksum,
}

// Verdict is the word of docs/wire.md for what err says about a frame, or ""
// where err is about something else.
func Verdict(err error) string {
	for word, fault := range verdicts {
		if errors.Is(err, fault) {
			return word
		}
	}
	return ""
}
