package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"modernc.org/sqlite"

	"github.com/cofferdam/cofferdam/internal/task"
)

// maxFullCheck is the largest database whose every page is looked at when it is
// opened; larger ones are looked at where they are read.
const maxFullCheck = 1 << 30

// SQLite's primary result codes that mean something to people.
const (
	codeBusy    = 5
	codeCorrupt = 11
	codeFull    = 13
	codeNotADB  = 26
)

// examine looks at an existing database through a connection that can't write,
// so that a damaged one stays as it is.
func (s *Store) examine(ctx context.Context) error {
	info, err := os.Lstat(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return s.lonely()
	}
	if err != nil {
		return task.Fail(task.InfraStorage, "the database "+s.path+" can't be read", err)
	}
	if !info.Mode().IsRegular() {
		return task.Fail(task.InfraStorage, "the database "+s.path+" is not a file; move it aside", nil)
	}
	if info.Size() == 0 {
		// SQLite takes an empty file for a new database. It is one only where nothing
		// ever ran.
		if logs, _ := os.ReadDir(filepath.Join(s.dir, "logs")); len(logs) > 0 {
			return s.damaged(errors.New("the file is empty, but tasks have run here"))
		}
		return nil
	}
	db, err := sql.Open("sqlite", s.address(url.Values{"mode": {"ro"}, "_pragma": {"busy_timeout(20000)", "query_only(1)"}}))
	if err != nil {
		return s.damaged(err)
	}
	defer db.Close() // it was only read
	db.SetMaxOpenConns(1)
	check := "SELECT 'ok' FROM sqlite_master LIMIT 1"
	if info.Size() <= maxFullCheck {
		check = "PRAGMA quick_check(1)"
	}
	var verdict string
	err = db.QueryRowContext(ctx, check).Scan(&verdict)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil && code(err) != codeNotADB && code(err) != codeCorrupt:
		return s.failure("examine", err)
	case err != nil:
		return s.damaged(err)
	case verdict != "ok":
		return s.damaged(errors.New(firstLine(verdict)))
	}
	return nil
}

// lonely refuses to start a new database beside the write-ahead log of one that
// is gone: that log is the newest part of somebody's facts.
func (s *Store) lonely() error {
	info, err := os.Lstat(s.path + "-wal")
	if err == nil && info.Size() > 0 {
		return s.damaged(errors.New("the file is gone, but " + s.path + "-wal is there"))
	}
	return nil
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	return s
}

func (s *Store) damaged(err error) error {
	return task.Fail(task.InfraStorage, fmt.Sprintf("the database %s is damaged. Nothing was changed. Restore %s (with its -wal, if there is one) from a backup; "+
		"or recover what can be read with `sqlite3 %s .recover | sqlite3 recovered.db` and put recovered.db in its place; "+
		"or move it, its -wal and its -shm aside to start empty", s.path, fileName, s.path), err)
}

// code is the primary result code of an error of SQLite; 0 for others.
func code(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code() & 0xff
	}
	return 0
}

// failure gives an error of the database a reason code and a text. Failures and
// ends of contexts pass as they are.
func (s *Store) failure(doing string, err error) error {
	var f *task.Failure
	switch {
	case err == nil, errors.As(err, &f), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	err = fmt.Errorf("%s: %w", doing, err)
	switch code(err) {
	case codeFull:
		return task.Fail(task.InfraStorage, "the disk that holds "+s.dir+" is full; make room there. Nothing half-written was kept", err)
	case codeCorrupt, codeNotADB:
		return s.damaged(err)
	case codeBusy:
		return task.Fail(task.InfraStorage, "another program holds the database "+s.path+"; end it", err)
	}
	return task.Fail(task.InfraStorage, "the database "+s.path+" failed", err)
}

func notFound(what, id string) error {
	return task.Fail(task.InputNotFound, "no "+what+" "+quoted(id), nil)
}

// quoted makes an id from outside fit for a message.
func quoted(id string) string {
	if len(id) > 64 {
		id = id[:64] + "…"
	}
	return fmt.Sprintf("%q", id)
}
