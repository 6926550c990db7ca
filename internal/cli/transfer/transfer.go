// Package transfer carries files between this machine and a sandbox as tar
// streams. What goes in is read without following links; what comes out is
// hostile, and touches nothing but its destination.
//
// Words. What was left out is named with the reason: links that lead out of
// what is copied, devices, pipes and the like.
//
// Not promised: that owners, set-id bits or other users' permission to write
// survive, or that a file which changes meanwhile is sent as it was at once.
package transfer

import (
	"errors"
	"fmt"
)

// ErrTooMuch is in the chain of the error for a stream that goes past a limit.
var ErrTooMuch = errors.New("more than is allowed")

// Copied says what was copied and what was left out.
type Copied struct {
	Files   int       `json:"files"`
	Bytes   int64     `json:"bytes"`
	Skipped []Skipped `json:"skipped"`
}

// Skipped is something that was left out, and why.
type Skipped struct {
	Name string `json:"name"`
	Why  string `json:"why"`
}

func (c *Copied) skip(name, format string, args ...any) {
	c.Skipped = append(c.Skipped, Skipped{name, fmt.Sprintf(format, args...)})
}
