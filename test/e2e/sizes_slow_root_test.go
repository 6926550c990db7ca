//go:build root && slow

package e2e

// largeFile is how many bytes the test of large files streams.
const largeFile = 3 << 30
