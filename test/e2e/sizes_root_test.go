//go:build root && !slow

package e2e

// largeFile is how many bytes the test of large files streams; test-slow has it
// at full size.
const largeFile = 512 << 20
