package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// roundName is the log of a round of a stage: the stage, and from the second
// round on "." and its number.
func roundName(name task.StageName) (st task.StageName, round int, ok bool) {
	text, number, rounds := strings.Cut(string(name), ".")
	if round = 1; rounds {
		n, err := strconv.Atoi(number)
		if err != nil || n < 2 || n > 99 || strconv.Itoa(n) != number {
			return "", 0, false
		}
		round = n
	}
	st = task.StageName(text)
	return st, round, slices.Contains(task.StageNames(), st)
}

// logPath is the file of one stage run's log.
func (s *Store) logPath(id string, attempt int, name task.StageName) (string, error) {
	if !validTask(id) {
		return "", notFound("task", id)
	}
	if _, _, ok := roundName(name); !ok || attempt < 0 {
		return "", task.Fail(task.InputNotFound, "no stage "+quoted(string(name)), nil)
	}
	return filepath.Join(s.dir, "logs", id, fmt.Sprintf("%d.%s.log", attempt, name)), nil
}

// Log opens the log of one stage run for appending; its size is where to go on.
// What was written is on disk when Close returns.
func (s *Store) Log(ctx context.Context, id string, attempt int, name task.StageName) (stage.LogWriter, error) {
	path, err := s.logPath(id, attempt, name)
	if err != nil {
		return nil, err
	}
	if _, err := oneTask(ctx, s.read, id); err != nil {
		return nil, s.failure("open log", err)
	}
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, s.logFailure(path, err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, s.logFailure(path, err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(s.logFailure(path, err), f.Close())
	}
	return &logWriter{store: s, task: id, file: f, size: info.Size()}, nil
}

func (s *Store) logFailure(path string, err error) error {
	text := "the log " + path + " failed"
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		text = "the disk that holds " + s.dir + " is full; make room there"
	}
	return task.Fail(task.InfraStorage, text, err)
}

type logWriter struct {
	store *Store
	task  string
	file  *os.File
	size  int64
}

// Write appends and wakes who follows the task.
func (w *logWriter) Write(b []byte) (int, error) {
	n, err := w.file.Write(b)
	w.size += int64(n)
	if n > 0 {
		w.store.wake(w.task)
	}
	if err != nil {
		return n, w.store.logFailure(w.file.Name(), err)
	}
	return n, nil
}

// Offset is the number of bytes in the log.
func (w *logWriter) Offset() int64 { return w.size }

// Close returns when the log is on disk.
func (w *logWriter) Close() error {
	if err := errors.Join(w.file.Sync(), w.file.Close()); err != nil {
		return w.store.logFailure(w.file.Name(), err)
	}
	return nil
}

// OpenLog opens a stage's log at offset; attempt 0 is the latest that has one.
// size is its length at that moment. A log that was not begun is empty.
func (s *Store) OpenLog(ctx context.Context, taskID string, attempt int, name task.StageName, offset int64) (r io.ReadCloser, size int64, err error) {
	if _, err := oneTask(ctx, s.read, taskID); err != nil {
		return nil, 0, s.failure("open log", err)
	}
	if attempt == 0 {
		attempt = s.latestLog(taskID, name)
	}
	path, err := s.logPath(taskID, attempt, name)
	if err != nil {
		return nil, 0, err
	}
	all := &rounds{}
	for round := 1; round <= stage.MaxRounds; round++ {
		if round > 1 {
			if path, err = s.logPath(taskID, attempt, stage.RoundLog(name, round)); err != nil {
				break // a single round was asked for
			}
		}
		f, length, err := s.openRound(path, offset-size)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it had nothing to say
		}
		if err != nil {
			return nil, 0, errors.Join(err, all.Close())
		}
		all.files = append(all.files, f)
		size += length
	}
	return all, size, nil
}

// openRound opens a file of a log at offset, or at its end when it is shorter.
func (s *Store) openRound(path string, offset int64) (*os.File, int64, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, err
	}
	if err != nil {
		return nil, 0, s.logFailure(path, err)
	}
	info, err := f.Stat()
	if err == nil {
		_, err = f.Seek(min(max(offset, 0), info.Size()), io.SeekStart)
	}
	if err != nil {
		return nil, 0, errors.Join(s.logFailure(path, err), f.Close())
	}
	return f, info.Size(), nil
}

// rounds reads the logs of a stage's rounds one after the other.
type rounds struct {
	files []*os.File
	next  int
}

// Read goes on with the next round where one ends, and with the last as long as
// it grows.
func (r *rounds) Read(b []byte) (int, error) {
	for r.next < len(r.files) {
		n, err := r.files[r.next].Read(b)
		if n > 0 || !errors.Is(err, io.EOF) || r.next == len(r.files)-1 {
			return n, err
		}
		r.next++
	}
	return 0, io.EOF
}

// Close closes all of them.
func (r *rounds) Close() error {
	var errs []error
	for _, f := range r.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// latestLog is the highest attempt whose run of the stage has a log, or 0.
func (s *Store) latestLog(id string, name task.StageName) int {
	if !validTask(id) {
		return 0
	}
	latest := 0
	entries, _ := os.ReadDir(filepath.Join(s.dir, "logs", id)) // none begun: 0
	for _, e := range entries {
		attempt, rest, _ := strings.Cut(e.Name(), ".")
		if n, err := strconv.Atoi(attempt); err == nil && rest == string(name)+".log" {
			latest = max(latest, n)
		}
	}
	return latest
}
