//go:build root

package store

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// TestFullDisk fills a real, small file system and makes room again.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	must(t, unix.Mount("none", dir, "tmpfs", 0, "size=2m,mode=700"))
	t.Cleanup(func() { must(t, unix.Unmount(dir, 0)) })
	s, err := Open(t.Context(), Options{Dir: dir})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) }) // before the unmount
	id := create(t, s, task.Task{}).ID
	log, err := s.Log(t.Context(), id, 1, task.Agent)
	must(t, err)

	filler, err := os.Create(filepath.Join(dir, "filler"))
	must(t, err)
	_, err = io.Copy(filler, zeros{})
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("filling the disk: %v", err)
	}
	must(t, filler.Close())

	before, told := read(t, s, id)
	err = s.SetTask(t.Context(), id, stage.TaskUpdate{State: task.Running, Text: strings.Repeat("long ", 2000)})
	if task.ReasonOf(err) != task.InfraStorage || !strings.Contains(err.Error(), "full") {
		t.Errorf("a row: %v", err)
	}
	if _, err := log.Write(make([]byte, 100000)); task.ReasonOf(err) != task.InfraStorage || !strings.Contains(err.Error(), "full") {
		t.Errorf("a log: %v", err)
	}
	if after, now := read(t, s, id); after.State != before.State || len(now) != len(told) {
		t.Errorf("half of the change was kept: %s, %d events", after.State, len(now))
	}
	if other, err := Open(t.Context(), Options{Dir: dir}); err == nil {
		must(t, other.Close()) // nothing had to be written
	} else if task.ReasonOf(err) != task.InfraStorage {
		t.Errorf("opening on a full disk: %v", err)
	}

	must(t, os.Remove(filler.Name()))
	must(t, s.SetTask(t.Context(), id, stage.TaskUpdate{State: task.Running}))
	if _, err := log.Write([]byte("on")); err != nil {
		t.Errorf("with room again: %v", err)
	}
	must(t, log.Close())
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
