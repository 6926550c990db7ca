package store

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/uptrace/bun"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/store/table"
	"github.com/cofferdam/cofferdam/internal/task"
)

//go:embed migrations/*.sql
var migrations embed.FS

// fileName of the database in its folder.
const fileName = "cofferdam.db"

// Options say where the rows are. Dir is required.
type Options struct {
	Dir    string           // DATA/cofferdamd: the database, and logs/ beside it
	Logger *slog.Logger     // nil: no log
	Now    func() time.Time // nil: time.Now
}

// Store is the open database. It is safe for concurrent use.
type Store struct {
	dir   string
	path  string
	log   *slog.Logger
	now   func() time.Time
	write *bun.DB // one connection, each transaction takes the write lock at its start
	read  *bun.DB
	wakes wakes
}

var (
	_ stage.Facts = (*Store)(nil)
	_ stage.Logs  = (*Store)(nil)
	_ stage.Turns = (*Store)(nil)
)

// Open opens the database, or makes one where there is none, and brings its
// schema up to date. A database that is damaged, of a newer program, or locked
// is a *task.Failure with task.InfraStorage that says what to do; nothing of it
// is changed.
func Open(ctx context.Context, o Options) (*Store, error) {
	s := &Store{dir: o.Dir, path: filepath.Join(o.Dir, fileName), log: o.Logger, now: o.Now, wakes: newWakes()}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.now == nil {
		s.now = time.Now
	}
	if err := os.MkdirAll(filepath.Join(o.Dir, "logs"), 0o700); err != nil {
		return nil, task.Fail(task.InfraStorage, "the folder "+o.Dir+" can't be made", err)
	}
	if err := s.examine(ctx); err != nil {
		return nil, err
	}
	if err := s.connect(ctx); err != nil {
		return nil, errors.Join(s.failure("open", err), s.Close())
	}
	return s, nil
}

// Close waits for what runs and closes the database.
func (s *Store) Close() error {
	var errs []error
	for _, db := range []*bun.DB{s.read, s.write} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(errs...)
}

// Ping says whether the database answers and has what it had at the start. For
// doctor.
func (s *Store) Ping(ctx context.Context) error {
	var n int
	err := s.read.NewRaw("SELECT count(*) FROM tasks WHERE ended_at IS NULL").Scan(ctx, &n)
	if err == nil {
		_, err = os.Stat(s.path)
	}
	return s.failure("ping", err)
}

// connect opens the two pools and migrates.
func (s *Store) connect(ctx context.Context) error {
	// SQLite gives the files beside it the mode of this one.
	f, err := os.OpenFile(s.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Chmod(0o600), f.Close()); err != nil {
		return err
	}
	write, err := sql.Open("sqlite", s.dsn()+"&_txlock=immediate")
	if err != nil {
		return err
	}
	write.SetMaxOpenConns(1)
	s.write = bun.NewDB(write, newDialect())
	if err := s.migrate(ctx, write); err != nil {
		return err
	}
	read, err := sql.Open("sqlite", s.dsn()+"&_pragma=query_only(1)")
	if err != nil {
		return err
	}
	read.SetMaxOpenConns(4)
	s.read = bun.NewDB(read, newDialect())
	return s.read.PingContext(ctx)
}

// dsn is the database's address. To it writers add that they begin by taking
// the lock, so that a transaction that reads first never fails for another
// that wrote meanwhile.
func (s *Store) dsn() string {
	return s.address(url.Values{"mode": {"rw"}, "_pragma": {
		"busy_timeout(20000)", "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)",
	}})
}

func (s *Store) address(q url.Values) string {
	return (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: s.path}).EscapedPath(), RawQuery: q.Encode()}).String()
}

func (s *Store) migrate(ctx context.Context, db *sql.DB) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, files)
	if err != nil {
		return err
	}
	have, want, err := p.GetVersions(ctx)
	if err != nil {
		return err
	}
	if have > want {
		return task.Fail(task.InfraStorage, fmt.Sprintf("the database %s was written by a newer cofferdamd (schema %d; this program knows %d); start that program again, or restore a backup made before the upgrade", s.path, have, want), nil)
	}
	if have == want {
		return nil
	}
	_, err = p.Up(ctx)
	return err
}

// Base is what packages of rows beneath this one work on.
func (s *Store) Base() table.Base {
	return table.Base{Write: s.write, Read: s.read, Now: s.now, Change: s.change, Emit: s.emit, Failure: s.failure}
}
