package embedded

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.temporal.io/server/common/headers"
	"go.temporal.io/server/schema/sqlite"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	databaseName = "engine.db"
	versionName  = "VERSION"
)

// ErrInUse is the error of a folder that another engine holds.
var ErrInUse = errors.New("another engine is running on this folder")

// lockFolder takes the folder for this process. The lock ends with it, however
// it ends.
func lockFolder(folder string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("engine folder: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("engine folder %s: %w", folder, ErrInUse)
		}
		return nil, fmt.Errorf("engine folder %s: lock: %w", folder, err)
	}
	return f, nil
}

// stamp is what VERSION holds for files this program can go on with.
func stamp() string {
	return fmt.Sprintf("temporal-server %s\nshards %d\n", headers.ServerVersion, shards)
}

// prepareDatabase leaves a database of this version in the folder. One of
// another version or a damaged one is moved aside, never opened: a file of
// another schema opens without an error and fails later.
func prepareDatabase(ctx context.Context, folder string, log *slog.Logger) error {
	file := filepath.Join(folder, databaseName)
	_, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return createDatabase(folder, log)
	case err != nil:
		return fmt.Errorf("engine database: %w", err)
	}
	why := ""
	have, err := os.ReadFile(filepath.Join(folder, versionName))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		why = "it has no VERSION file"
	case err != nil:
		return fmt.Errorf("engine version: %w", err)
	case string(have) != stamp():
		why = fmt.Sprintf("it was made by %q and this is %q", firstLine(have), firstLine([]byte(stamp())))
	default:
		if err := checkDatabase(ctx, file); err != nil {
			why = "it is damaged: " + err.Error()
		}
	}
	if why == "" {
		return nil
	}
	old, err := moveAside(file, time.Now())
	if err != nil {
		return err
	}
	log.Warn("engine database moved aside; a fresh one is made and open tasks start again from provision",
		"why", why, "old", old)
	return createDatabase(folder, log)
}

func firstLine(b []byte) string {
	line, _, _ := strings.Cut(string(b), "\n")
	return line
}

// checkDatabase asks SQLite whether the file is sound.
func checkDatabase(ctx context.Context, file string) error {
	db, err := sql.Open("sqlite", "file:"+file+"?mode=rw&_pragma=busy_timeout(10000)")
	if err != nil {
		return err
	}
	defer db.Close()
	var answer string
	if err := db.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&answer); err != nil {
		return err
	}
	if answer != "ok" {
		return errors.New(answer)
	}
	var n int
	return db.QueryRowContext(ctx, "SELECT count(*) FROM namespaces WHERE name = ?", Namespace).Scan(&n)
}

// moveAside renames the database and its journals and returns the new name.
func moveAside(file string, now time.Time) (string, error) {
	old := file + "." + now.UTC().Format("20060102T150405.000000000") + ".old"
	for _, suffix := range []string{"-shm", "-wal", ""} {
		err := os.Rename(file+suffix, old+suffix)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("engine database: move aside: %w", err)
		}
	}
	return old, nil
}

// createDatabase makes schema and namespace in a file beside and renames it,
// so that a file under the real name is always complete.
func createDatabase(folder string, log *slog.Logger) error {
	fresh := filepath.Join(folder, databaseName+".new")
	for _, suffix := range []string{"-shm", "-wal", ""} {
		if err := os.Remove(fresh + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("engine database: %w", err)
		}
	}
	cfg := sqlConfig(fresh)
	// Without a write-ahead log the one file is all there is to rename.
	cfg.ConnectAttributes["journal_mode"] = "delete"
	if err := sqlite.SetupSchema(cfg); err != nil {
		return fmt.Errorf("engine database: schema: %w", err)
	}
	namespace, err := sqlite.NewNamespaceConfig(clusterName, Namespace, false, nil)
	if err != nil {
		return fmt.Errorf("engine database: namespace: %w", err)
	}
	namespace.Detail.Config.Retention = durationpb.New(Retention)
	if err := sqlite.CreateNamespaces(cfg, namespace); err != nil {
		return fmt.Errorf("engine database: namespace: %w", err)
	}
	if err := os.Chmod(fresh, 0o600); err != nil {
		return fmt.Errorf("engine database: %w", err)
	}
	if err := writeFile(filepath.Join(folder, versionName), []byte(stamp())); err != nil {
		return err
	}
	if err := os.Rename(fresh, filepath.Join(folder, databaseName)); err != nil {
		return fmt.Errorf("engine database: %w", err)
	}
	log.Info("engine database made", "version", headers.ServerVersion)
	return syncFolder(folder)
}
