package store

import (
	"errors"

	"meridian/keep/store/arena"
	"meridian/keep/store/owner"
	"meridian/keep/store/protocol"
)

// What can come of a call, besides the error of its context.
var (
	// ErrClosed means that this store is closed, or is being closed.
	ErrClosed = errors.New("store: closed")

	ErrExists      = owner.ErrExists
	ErrBusy        = owner.ErrBusy
	ErrOverloaded  = owner.ErrOverloaded
	ErrCollision   = owner.ErrCollision
	ErrMissing     = owner.ErrMissing
	ErrFull        = owner.ErrFull
	ErrTooLarge    = owner.ErrTooLarge
	ErrStale       = owner.ErrStale
	ErrUnavailable = protocol.ErrUnavailable
	ErrTooSmall    = protocol.ErrTooSmall
	ErrRefused     = protocol.ErrRefused
	ErrName        = protocol.ErrName
	ErrTorn        = arena.ErrTorn
)
