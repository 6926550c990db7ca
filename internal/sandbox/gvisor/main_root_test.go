//go:build root

package gvisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/sandbox/sandboxtest"
)

// programs are the built programs that the tests run with.
var programs struct{ runsc, guest string }

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		os.Exit(childMain(dir))
	}
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runTests(m *testing.M) (int, error) {
	if os.Geteuid() != 0 {
		return 0, fmt.Errorf("these tests make sandboxes and need root")
	}
	// A kept place: linking again is skipped when nothing changed.
	cache, err := os.UserCacheDir()
	if err != nil {
		return 0, err
	}
	dir := filepath.Join(cache, "cofferdam-test", "gvisor")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, err
	}
	for _, name := range []string{"runsc", "cofferdam-guest"} {
		cmd := exec.Command("go", "build", "-o", filepath.Join(dir, name), "github.com/cofferdam/cofferdam/cmd/"+name)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return 0, fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
	}
	programs.runsc, programs.guest = filepath.Join(dir, "runsc"), filepath.Join(dir, "cofferdam-guest")
	return m.Run(), nil
}

// testDir returns a folder with a short path: a socket must lie below it.
func testDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		sweep(t, dir)
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func testConfig(t *testing.T, dir string) Config {
	t.Helper()
	return Config{
		Dir: dir, Runsc: programs.runsc, Guest: programs.guest, HostPath: os.Getenv("PATH"),
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
}

// open returns an adopted driver that is closed when the test ends.
func open(t *testing.T, cfg Config) *Driver {
	t.Helper()
	d, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	if err := d.Adopt(context.Background()); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestConformance(t *testing.T) {
	sandboxtest.Run(t, func(t *testing.T) sandbox.Driver { return open(t, testConfig(t, testDir(t))) })
}

// sweep ends what a failed test left in dir's name.
func sweep(t *testing.T, dir string) {
	t.Helper()
	d := &Driver{cfg: Config{Dir: dir}}
	processes, err := d.runscProcesses()
	if err != nil {
		t.Error(err)
	}
	groups, err := loadCgroups(dir)
	if err != nil {
		t.Error(err)
	}
	d.cgroups = groups
	for _, p := range processes {
		t.Errorf("still there: %+v", p)
		if err := errors.Join(d.killAll(context.Background(), p.Sandbox), groups.remove(context.Background(), p.Sandbox)); err != nil {
			t.Error(err)
		}
	}
}
