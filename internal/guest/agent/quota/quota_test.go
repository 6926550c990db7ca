package quota

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

func TestShortOfMemory(t *testing.T) {
	const mib = 1 << 20
	for _, test := range []struct {
		total, free uint64
		short       bool
	}{
		{256 * mib, 200 * mib, false},
		{256 * mib, 49 * mib, false},
		{256 * mib, 47 * mib, true},
		{4096 * mib, 300 * mib, false},
		{4096 * mib, 250 * mib, true},
		{64 * mib, 40 * mib, false},
		{64 * mib, 30 * mib, true},
		{0, 0, false},
	} {
		m := Memory{Total: test.total, Free: test.free}
		if m.Short() != test.short {
			t.Errorf("%d of %d MiB: %v", test.free/mib, test.total/mib, m.Short())
		}
		if next := m.Next(); next < fastest || next > slowest {
			t.Errorf("%d of %d MiB: next look after %v", test.free/mib, test.total/mib, next)
		}
	}
	m, err := LookMemory()
	if err != nil || m.Total == 0 || m.Free > m.Total {
		t.Errorf("this machine: %+v, %v", m, err)
	}
	if Resident(os.Getpid()) < mib || Resident(1<<30) != 0 {
		t.Error("this process, and none")
	}
}

func TestFilesThatExist(t *testing.T) {
	f := Files{Limit: 1600}
	counted := 0
	over := func(made, existing uint64) bool {
		return f.Over(made, func(uint64) uint64 { counted++; return existing })
	}
	if over(1600, 1600) || counted != 0 {
		t.Error("counted without need")
	}
	if over(1601, 100) || counted != 1 {
		t.Error("made and removed is not too much")
	}
	if over(3000, 1499) || counted != 1 {
		t.Error("counted again too early")
	}
	if !over(3200, 1601) || counted != 2 {
		t.Error("too many are not seen")
	}
	if over(3300, 1601) || counted != 2 {
		t.Error("nothing may be made to clean up")
	}
	if !over(3301, 1601) {
		t.Error("it may go on for ever")
	}
	if (&Files{}).Over(1, func(uint64) uint64 { return 1 }) != true {
		t.Error("the zero value allows something")
	}
}

func TestCount(t *testing.T) {
	root := t.TempDir()
	for i := range 30 {
		dir := filepath.Join(root, "d"+strconv.Itoa(i%3))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/", filepath.Join(root, "away")); err != nil {
		t.Fatal(err)
	}
	if n := Count([]string{root, filepath.Join(root, "absent"), filepath.Join(root, "away")}, 1000); n != 34 {
		t.Errorf("%d files", n)
	}
	if n := Count([]string{root}, 10); n <= 10 || n > 34 {
		t.Errorf("stopped at %d", n)
	}
	first, err := Made(root)
	if err != nil || first == 0 {
		t.Fatal(first, err)
	}
	if _, err := os.Lstat(filepath.Join(root, ".cofferdam-count")); err == nil {
		t.Error("the file that counts stays")
	}
	if !OpenFiles(os.Getpid(), 3) || OpenFiles(os.Getpid(), 1<<20) {
		t.Error("open files")
	}
}
