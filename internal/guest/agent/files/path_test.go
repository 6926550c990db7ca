package files

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/guest"
)

// FuzzParse reads any bytes as a path: what is taken is the same path again, lies
// beneath its root and has no name that leads anywhere else.
func FuzzParse(f *testing.F) {
	place := Place{Roots: []string{"/workspace", "/home/agent", "/tmp"}}
	for _, s := range []string{
		"/workspace", "/workspace/a/b", "/workspace/../etc", "/workspacex", "/tmp//a", "/tmp/./a", "/tmp/a/", "/home/agent/.ssh", "/home", "/", "",
		"tmp/a", "/tmp/\xff\n", "/tmp/a\x00b", "/tmp/...", "/tmp/..a",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, name []byte) {
		root, names, err := place.parse(name)
		if err != nil {
			return
		}
		if again := strings.Join(append([]string{root}, names...), "/"); again != string(name) {
			t.Fatalf("%q is taken as %q", name, again)
		}
		if clean := filepath.Clean(string(name)); clean != string(name) || clean != root && !strings.HasPrefix(clean, root+"/") {
			t.Fatalf("%q leaves %s", name, root)
		}
		if bytes.IndexByte(name, 0) >= 0 || len(names) > guest.MaxFileDepth {
			t.Fatalf("%q is taken", name)
		}
	})
}

// FuzzWalk walks any path over a tree of links with links followed: where it ends
// lies beneath the root, and nothing stays open.
func FuzzWalk(f *testing.F) {
	base, err := filepath.EvalSymlinks(f.TempDir())
	if err != nil {
		f.Fatal(err)
	}
	root := filepath.Join(base, "root")
	for _, err := range []error{
		os.MkdirAll(filepath.Join(root, "a/b/c"), 0o755), os.WriteFile(filepath.Join(root, "a/f"), nil, 0o644),
		os.Symlink("..", filepath.Join(root, "a/up")), os.Symlink("../../..", filepath.Join(root, "a/b/out")), os.Symlink("/", filepath.Join(root, "top")),
		os.Symlink(root+"/a", filepath.Join(root, "abs")), os.Symlink("loop", filepath.Join(root, "loop")), os.Symlink(root+"x", filepath.Join(root, "near")),
		os.Symlink("a/./b//../b/c/", filepath.Join(root, "long")), os.Symlink(root+"/../secret", filepath.Join(root, "sly")), os.WriteFile(filepath.Join(base, "secret"), nil, 0o644),
	} {
		if err != nil {
			f.Fatal(err)
		}
	}
	for _, s := range []string{"a/f", "a/up/a/up", "a/b/out", "top/etc", "abs/f", "loop", "near", "long", "long/new", "sly", "a/up/abs/b/out/secret", "new"} {
		f.Add(s)
	}
	place := Place{Roots: []string{root}}
	f.Fuzz(func(t *testing.T, name string) {
		before := openCount(t)
		s, err := place.to([]byte(root+"/"+name), how{follow: true, last: true})
		if err == nil {
			at, rerr := os.Readlink(handleOf(s.dir))
			if rerr != nil || at != root && !strings.HasPrefix(at, root+"/") {
				t.Errorf("%q leads to %q, %v", name, at, rerr)
			}
			if s.name == ".." || strings.Contains(s.name, "/") {
				t.Errorf("%q ends at %q", name, s.name)
			}
			var stat unix.Stat_t
			if unix.Fstatat(s.dir, s.name, &stat, unix.AT_SYMLINK_NOFOLLOW) == nil && stat.Mode&unix.S_IFMT == unix.S_IFLNK {
				t.Errorf("%q ends at a link", name)
			}
			s.close()
		}
		if after := openCount(t); after != before {
			t.Errorf("%q: %d descriptors were open, %d are", name, before, after)
		}
	})
}

func handleOf(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

func openCount(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}
