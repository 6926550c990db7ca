//go:build root && slow

package gvisor

// What the tests of large things take at full size.
const (
	largeFile   = 3 << 30 // bytes
	manyEntries = 200_000 // in one folder
)
