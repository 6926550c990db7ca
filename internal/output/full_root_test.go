//go:build root

package output

import (
	"strings"
	"syscall"
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
)

// TestFullDisk stores more than a real, small file system holds.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=1m,mode=700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	b, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	// The first does not fit into the spool, the second only there.
	for _, size := range []int64{8 << 20, 700 << 10} {
		_, _, err := b.Put(t.Context(), &endless{size}, size)
		if task.ReasonOf(err) != task.InfraStorage || !strings.Contains(err.Error(), "full") {
			t.Errorf("%d bytes: %v", size, err)
		}
		if left := files(t, dir); len(left) != 0 {
			t.Errorf("%d bytes: left behind: %v", size, left)
		}
	}
	if _, _, err := b.Put(t.Context(), strings.NewReader("small"), 10); err != nil {
		t.Error(err)
	}
}
