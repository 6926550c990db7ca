package task

import "time"

// Given is a value that was lent for a moment. The zero Given lends nothing.
type Given struct {
	Value Secret
	Keep  time.Duration // how long it may be kept, from before it was asked for
	Once  bool          // it is for one request and never kept; Keep is zero
}

// MintedValue is a value that was minted for a lease, or is about to be, as it is
// kept until it is over or was revoked at who made it.
type MintedValue struct {
	ID         string // "m-" and 16 characters of lowercase base32
	Lease      Lent
	Credential Credential // as it was when the value was minted
	Sealed     []byte     // by the vault; empty until the value came
	Begun      time.Time
	Kept       *time.Time // when the value came; nil: not yet, or its answer was lost
	Until      *time.Time // when the value is over by itself, by our clock
}
