// Package e2e tests the whole platform on real parts: the built programs,
// gVisor, namespaces, the durable engine, kill -9. Its files have the build
// tag root; `make test` runs them. Judges are others where they exist: curl,
// npm, git and upstream servers of the test that count what they saw.
package e2e
