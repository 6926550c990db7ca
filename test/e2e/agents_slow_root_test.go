//go:build root && slow

package e2e

import "testing"

// The slower two of the harnesses.
func TestOpencodeAndGemini(t *testing.T) { mendWith(t, harnessCases()[2:]...) }
