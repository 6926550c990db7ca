//go:build root

package gvisor

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"testing"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/sandbox/sandboxtest"
)

// treeFiles is how many small files the tree has, 1,000 in a folder.
const treeFiles = 20_000

func smallFiles(b *testing.B) []byte {
	b.Helper()
	var stream bytes.Buffer
	w := tar.NewWriter(&stream)
	for i := range treeFiles {
		if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("tree/d%d/f%d", i/1000, i), Typeflag: tar.TypeReg, Mode: 0o644, Size: 2}); err != nil {
			b.Fatal(err)
		}
		if _, err := io.WriteString(w, "x\n"); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	return stream.Bytes()
}

// BenchmarkPutTree is many small files into a sandbox.
func BenchmarkPutTree(b *testing.B) {
	d := benchDriver(b)
	id := sandboxtest.ID()
	if _, err := d.Create(b.Context(), sandbox.Spec{ID: id}); err != nil {
		b.Fatal(err)
	}
	stream := smallFiles(b)
	n := 0
	for b.Loop() {
		if err := d.Put(b.Context(), id, fmt.Sprintf("/workspace/%d", n), bytes.NewReader(stream)); err != nil {
			b.Fatal(err)
		}
		n++
	}
	b.ReportMetric(float64(n*treeFiles)/b.Elapsed().Seconds(), "files/s")
	if err := d.Destroy(b.Context(), id); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkGetTree is many small files out of a sandbox.
func BenchmarkGetTree(b *testing.B) {
	d := benchDriver(b)
	id := sandboxtest.ID()
	if _, err := d.Create(b.Context(), sandbox.Spec{ID: id}); err != nil {
		b.Fatal(err)
	}
	if err := d.Put(b.Context(), id, "/workspace/in", bytes.NewReader(smallFiles(b))); err != nil {
		b.Fatal(err)
	}
	n := 0
	for b.Loop() {
		r, err := d.Get(b.Context(), id, "/workspace/in", nil)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, r); err != nil {
			b.Fatal(err)
		}
		r.Close()
		n++
	}
	b.ReportMetric(float64(n*treeFiles)/b.Elapsed().Seconds(), "files/s")
	if err := d.Destroy(b.Context(), id); err != nil {
		b.Fatal(err)
	}
}
