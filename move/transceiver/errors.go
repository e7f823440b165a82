package transceiver

import "errors"

// ErrClosed means that the transceiver is closing or closed. Why a hand-off is
// refused or fails is told by the errors of package handoff.
var ErrClosed = errors.New("transceiver: closed")
