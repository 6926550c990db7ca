//go:build root && !slow

package gvisor

// What the tests of large things take; test-slow has them at full size.
const (
	largeFile   = 512 << 20 // bytes
	manyEntries = 20_000    // in one folder
)
