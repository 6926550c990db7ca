package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/store/table"
	"github.com/cofferdam/cofferdam/internal/task"
)

// contents reads every file beneath dir.
func contents(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		out[path] = b
		return err
	})
	must(t, err)
	return out
}

// used makes a database with tasks in it; live leaves its newest rows in the
// write-ahead log, as a killed program does.
func used(t *testing.T, live bool) string {
	t.Helper()
	dir := t.TempDir()
	s, err := Open(t.Context(), Options{Dir: dir})
	must(t, err)
	for range 12 {
		id := create(t, s, task.Task{RequestedBy: "alice", Spec: task.Spec{Prompt: strings.Repeat("fix it ", 200)}}).ID
		w, err := s.Log(t.Context(), id, 1, task.Agent)
		must(t, errors.Join(err, w.Close()))
	}
	if !live {
		must(t, s.Close())
		return dir
	}
	killed := t.TempDir()
	for path, b := range contents(t, dir) {
		rel, err := filepath.Rel(dir, path)
		must(t, err)
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(killed, rel)), 0o700))
		must(t, os.WriteFile(filepath.Join(killed, rel), b, 0o600))
	}
	must(t, s.Close())
	return killed
}

func TestDamagedDatabaseIsRefusedAndLeftAlone(t *testing.T) {
	noise := bytes.Repeat([]byte("noise"), 4000)
	at := func(offset int64, b []byte) func(string) error {
		return func(path string) error {
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteAt(b, offset)
			return errors.Join(err, f.Close())
		}
	}
	for _, c := range []struct {
		name  string
		live  bool
		spoil func(path string) error
	}{
		{"header", false, at(0, noise[:64])},
		{"middle", false, at(20000, noise)},
		{"all of it", false, func(p string) error { return os.WriteFile(p, noise, 0o600) }},
		{"cut", false, func(p string) error { return os.Truncate(p, 30000) }},
		{"cut to a few bytes", false, func(p string) error { return os.Truncate(p, 50) }},
		{"emptied", false, func(p string) error { return os.Truncate(p, 0) }},
		{"gone, with a write-ahead log", true, os.Remove},
		{"a folder", false, func(p string) error { return errors.Join(os.Remove(p), os.Mkdir(p, 0o700)) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := used(t, c.live)
			must(t, c.spoil(filepath.Join(dir, fileName)))
			before := contents(t, dir)
			s, err := Open(t.Context(), Options{Dir: dir})
			if err == nil {
				must(t, s.Close())
				t.Fatal("it was opened")
			}
			if task.ReasonOf(err) != task.InfraStorage || !strings.Contains(err.Error(), filepath.Join(dir, fileName)) || !strings.Contains(err.Error(), "aside") {
				t.Errorf("the error %v does not say what to do", err)
			}
			for path, b := range before {
				if now, err := os.ReadFile(path); strings.HasSuffix(path, "-shm") {
					continue // SQLite's index of the write-ahead log, made anew from it
				} else if err != nil || !bytes.Equal(now, b) {
					t.Errorf("%s was changed (%v)", path, err)
				}
			}
		})
	}
}

func TestKilledDatabaseIsReadBack(t *testing.T) {
	s := openAt(t, used(t, true))
	if all, err := s.Tasks(t.Context(), "", 100, ""); err != nil || len(all) != 12 {
		t.Errorf("%d tasks, %v", len(all), err)
	}
}

func TestNewerSchemaIsRefused(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(t.Context(), Options{Dir: dir})
	must(t, err)
	_, err = s.write.ExecContext(t.Context(), "INSERT INTO goose_db_version (version_id, is_applied) VALUES (9000, 1)")
	must(t, errors.Join(err, s.Close()))
	_, err = Open(t.Context(), Options{Dir: dir})
	if task.ReasonOf(err) != task.InfraStorage || !strings.Contains(err.Error(), "newer") || !strings.Contains(err.Error(), "9000") {
		t.Errorf("got %v", err)
	}
}

func TestFolderThatCantBeMade(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	if _, err := Open(t.Context(), Options{Dir: filepath.Join(file, "x")}); task.ReasonOf(err) != task.InfraStorage {
		t.Errorf("got %v", err)
	}
}

func TestModeAndPragmas(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a b?c#d%") // characters that mean something in an address
	s := openAt(t, dir)
	create(t, s, task.Task{})
	for _, name := range []string{fileName, fileName + "-wal"} {
		info, err := os.Stat(filepath.Join(dir, name))
		must(t, err)
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", name, info.Mode())
		}
	}
	for _, c := range []struct{ pragma, want string }{{"journal_mode", "wal"}, {"synchronous", "2"}, {"foreign_keys", "1"}} {
		var got string
		must(t, s.write.NewRaw("PRAGMA "+c.pragma).Scan(t.Context(), &got))
		if got != c.want {
			t.Errorf("%s is %s, want %s", c.pragma, got, c.want)
		}
	}
	if _, err := s.read.ExecContext(t.Context(), "DELETE FROM tasks"); err == nil {
		t.Error("a reader may write")
	}
	must(t, s.Ping(t.Context()))
}

// TestFullDatabase stands in for a full disk: SQLite reports both alike.
func TestFullDatabase(t *testing.T) {
	s := open(t)
	id := create(t, s, task.Task{}).ID
	var pages int
	must(t, s.write.NewRaw("PRAGMA page_count").Scan(t.Context(), &pages))
	_, err := s.write.ExecContext(t.Context(), fmt.Sprintf("PRAGMA max_page_count = %d", pages))
	must(t, err)
	before, told := read(t, s, id)
	err = s.SetTask(t.Context(), id, stage.TaskUpdate{State: task.Running, Text: strings.Repeat("long ", 10000)})
	if task.ReasonOf(err) != task.InfraStorage || !strings.Contains(err.Error(), "full") {
		t.Errorf("got %v", err)
	}
	if after, now := read(t, s, id); after.State != before.State || len(now) != len(told) {
		t.Errorf("half of the change was kept: %s, %d events", after.State, len(now))
	}
	_, err = s.write.ExecContext(t.Context(), "PRAGMA max_page_count = 1000000")
	must(t, err)
	must(t, s.SetTask(t.Context(), id, stage.TaskUpdate{State: task.Running}))
}

func TestFailuresPassContextsOn(t *testing.T) {
	s := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Task(ctx, "t-aaaaaaaaaaaaaaaa"); !errors.Is(err, context.Canceled) || task.ReasonOf(err) != "" {
		t.Errorf("got %v", err)
	}
	if err := s.logFailure("x", &fs.PathError{Err: syscall.ENOSPC}); !strings.Contains(err.Error(), "full") {
		t.Errorf("got %v", err)
	}
	if got := table.Moment(time.Unix(5, 6).UnixNano()); !got.Equal(time.Unix(5, 6)) || got.Location() != time.UTC {
		t.Errorf("got %v", got)
	}
}
