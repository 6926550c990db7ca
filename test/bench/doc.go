// Package bench measures speed as ratios, side by side in one run on one
// machine, and prints the table of docs/benchmarks.md. Its file has the build
// tag bench; `make bench` runs it as root. It asserts nothing: machines differ,
// and timing never fails a test.
package bench
