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

// logPath is the file of one stage run's log.
func (s *Store) logPath(id string, attempt int, name task.StageName) (string, error) {
	if !validTask(id) {
		return "", notFound("task", id)
	}
	if !slices.Contains(task.StageNames(), name) || attempt < 0 {
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
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return io.NopCloser(strings.NewReader("")), 0, nil
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
