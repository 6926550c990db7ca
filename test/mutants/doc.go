// Package mutants breaks the product on purpose, one promise at a time, and
// expects the tests to notice. A mutant is a patched copy of one file, given
// to go test with -overlay, so that the tree itself stays whole.
package mutants
