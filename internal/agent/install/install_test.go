package install

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/agent/catalog"
	"github.com/cofferdam/cofferdam/internal/task"
)

// file is an entry of a package.
type file struct {
	name string
	kind byte
	mode int64
	data string
	link string
}

func good() []file {
	return []file{
		{name: "package/package.json", data: `{"scripts":{"postinstall":"touch /tmp/executed"}}`},
		{name: "package/claude", mode: 0o4755, data: "the program"},
		{name: "package/lib/deep/x.js", data: "x"},
	}
}

func pack(t testing.TB, files []file) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, f := range files {
		if f.kind == 0 {
			f.kind = tar.TypeReg
		}
		if f.mode == 0 {
			f.mode = 0o644
		}
		if err := w.WriteHeader(&tar.Header{Name: f.name, Typeflag: f.kind, Mode: f.mode, Size: int64(len(f.data)), Linkname: f.link}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(f.data)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func digest(b []byte) string {
	sum := sha512.Sum512(b)
	return base64.StdEncoding.EncodeToString(sum[:])
}

// registry serves one package under every version of 1.x.
type registry struct {
	*httptest.Server
	tarball   []byte
	integrity string // empty: the tarball's own
	elsewhere string // where it says that tarballs are; empty: here
	redirect  string // of every request but those of its own path; empty: none
	status    int    // of every answer; 0: 200
	gate      chan struct{}
}

func newRegistry(t *testing.T, tarball []byte) *registry {
	r := &registry{tarball: tarball}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *registry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if r.status != 0 {
		w.WriteHeader(r.status)
		return
	}
	if r.redirect != "" && q.URL.Path != "/moved" {
		http.Redirect(w, q, r.redirect, http.StatusFound)
		return
	}
	if q.URL.Path == "/tarball.tgz" {
		if r.gate != nil {
			<-r.gate
		}
		_, _ = w.Write(r.tarball)
		return
	}
	parts := strings.Split(strings.Trim(q.URL.EscapedPath(), "/"), "/")
	name, _ := url.PathUnescape(parts[0])
	if len(parts) != 2 || name != "@anthropic-ai/claude-code-linux-x64" || !strings.HasPrefix(parts[1], "1.") {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	integrity, base := r.integrity, r.elsewhere
	if integrity == "" {
		integrity = "sha512-" + digest(r.tarball)
	}
	if base == "" {
		base = r.URL
	}
	var doc document
	doc.Version, doc.Dist.Tarball, doc.Dist.Integrity = parts[1], base+"/tarball.tgz", integrity
	_ = json.NewEncoder(w).Encode(doc)
}

// shelf opens a shelf whose pinned claude is 1.0.0 with the digest.
func shelf(t *testing.T, dir string, r *registry, pinned string) *Shelf {
	t.Helper()
	s, err := Open(Options{Dir: dir, Registry: r.URL, Arch: "amd64", Log: slog.New(slog.DiscardHandler), Catalog: func(name string) (catalog.Harness, bool) {
		h, ok := catalog.Find(name)
		if name == "claude" {
			source := h.Source["amd64"]
			source.SHA512 = pinned
			h.Version, h.Source = "1.0.0", map[string]catalog.Source{"amd64": source}
		}
		return h, ok
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// settle waits until nothing is under way and returns the package.
func settle(t *testing.T, s *Shelf, name, version string) Package {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		list, err := s.List()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range list {
			if p.Name == name && p.Version == version && p.State != Installing {
				return p
			}
		}
	}
	t.Fatal("the installation does not end")
	return Package{}
}

func TestInstallListRemove(t *testing.T) {
	tarball := pack(t, good())
	r := newRegistry(t, tarball)
	dir := t.TempDir()
	s := shelf(t, dir, r, digest(tarball))
	if _, err := s.Dir("claude", "1.0.0"); task.ReasonOf(err) != task.InputInvalid || !strings.Contains(err.Error(), "cofferdam agent install claude@1.0.0") {
		t.Errorf("before it is installed: %v", err)
	}
	p, err := s.Install("claude", "")
	if err != nil || p.Version != "1.0.0" || !p.Pinned {
		t.Fatalf("%+v, %v", p, err)
	}
	if p = settle(t, s, "claude", "1.0.0"); p.State != Installed || p.SHA512 != digest(tarball) || p.Size == 0 {
		t.Fatalf("%+v", p)
	}
	at, err := s.Dir("claude", "1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(filepath.Join(at, "bin", "claude"))
	if err != nil || string(program) != "the program" {
		t.Errorf("the program: %q, %v", program, err)
	}
	info, err := os.Stat(filepath.Join(at, "package", "claude"))
	if err != nil || info.Mode() != 0o755 {
		t.Errorf("the program's mode: %v, %v", info.Mode(), err)
	}
	if _, err := os.Stat("/tmp/executed"); err == nil {
		t.Error("an install script ran")
	}
	if p, err := s.Install("claude", "1.0.0"); err != nil || p.State != Installed {
		t.Errorf("again: %+v, %v", p, err)
	}
	s.Close()
	s = shelf(t, dir, r, digest(tarball))
	if p := settle(t, s, "claude", "1.0.0"); p.State != Installed {
		t.Errorf("by another process: %+v", p)
	}
	if err := s.Remove("claude", "1.0.0", func(string) bool { return true }); task.ReasonOf(err) != task.InputConflict {
		t.Errorf("in use: %v", err)
	}
	if err := s.Remove("claude", "1.0.0", func(string) bool { return false }); err != nil {
		t.Error(err)
	}
	if err := s.Remove("claude", "1.0.0", func(string) bool { return false }); task.ReasonOf(err) != task.InputNotFound {
		t.Errorf("twice: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".new-*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestRefusedPackages(t *testing.T) {
	with := func(f ...file) []file { return append(good(), f...) }
	many := good()
	for range maxEntries {
		many = append(many, file{name: "package/d", kind: tar.TypeDir, mode: 0o755})
	}
	for name, c := range map[string]struct {
		files   []file
		version string
		change  func(*registry)
		want    task.Reason
	}{
		"another digest than the pinned": {files: with(file{name: "package/evil", data: "x"}), version: "1.0.0", want: task.InputInvalid},
		"another digest than announced":  {version: "1.0.1", change: func(r *registry) { r.integrity = "sha512-" + digest(nil) }, want: task.InputInvalid},
		"no digest":                      {version: "1.0.1", change: func(r *registry) { r.integrity = "sha1-AAAA" }, want: task.InputInvalid},
		"sent to another place":          {version: "1.0.1", change: func(r *registry) { r.elsewhere = "http://127.0.0.1:1" }, want: task.InputInvalid},
		"redirected to another place":    {version: "1.0.1", change: func(r *registry) { r.redirect = "http://127.0.0.1:1/latest/meta-data" }, want: task.InputInvalid},
		"redirected to another scheme":   {version: "1.0.1", change: func(r *registry) { r.redirect = strings.Replace(r.URL, "http:", "https:", 1) + "/moved" }, want: task.InputInvalid},
		"redirected without an end":      {version: "1.0.1", change: func(r *registry) { r.redirect = "/again" }, want: task.InfraInternal},
		"redirected at its own place":    {version: "1.0.1", change: func(r *registry) { r.redirect = "/moved" }, want: task.InputNotFound},
		"no such version":                {version: "2.0.0", want: task.InputNotFound},
		"a failing registry":             {version: "1.0.1", change: func(r *registry) { r.status = 500 }, want: task.InfraInternal},
		"out of its folder":              {files: with(file{name: "package/../../evil", data: "x"}), version: "1.0.1", want: task.InputInvalid},
		"absolute":                       {files: with(file{name: "/etc/evil", data: "x"}), version: "1.0.1", want: task.InputInvalid},
		"a link":                         {files: with(file{name: "package/l", kind: tar.TypeSymlink, link: "/etc/passwd"}), version: "1.0.1", want: task.InputInvalid},
		"a hard link":                    {files: with(file{name: "package/l", kind: tar.TypeLink, link: "package/claude"}), version: "1.0.1", want: task.InputInvalid},
		"a device":                       {files: with(file{name: "package/d", kind: tar.TypeChar}), version: "1.0.1", want: task.InputInvalid},
		"a file twice":                   {files: with(file{name: "package/claude", data: "y"}), version: "1.0.1", want: task.InputInvalid},
		"no program":                     {files: good()[:1], version: "1.0.1", want: task.InputInvalid},
		"too many files":                 {files: many, version: "1.0.1", want: task.LimitSize},
	} {
		t.Run(name, func(t *testing.T) {
			if c.files == nil {
				c.files = good()
			}
			r := newRegistry(t, pack(t, c.files))
			if c.change != nil {
				c.change(r)
			}
			dir := t.TempDir()
			s := shelf(t, dir, r, digest(pack(t, good())))
			if _, err := s.Install("claude", c.version); err != nil {
				t.Fatal(err)
			}
			p := settle(t, s, "claude", c.version)
			if p.State != Failed || p.Reason != c.want || p.Text == "" {
				t.Errorf("%+v, want %s", p, c.want)
			}
			if _, err := s.Dir("claude", c.version); err == nil {
				t.Error("it is there")
			}
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
	r := newRegistry(t, []byte("not gzip"))
	s := shelf(t, t.TempDir(), r, "")
	if _, err := s.Install("claude", "1.0.1"); err != nil {
		t.Fatal(err)
	}
	if p := settle(t, s, "claude", "1.0.1"); p.Reason != task.InputInvalid {
		t.Errorf("no gzip: %+v", p)
	}
}

// A registry's password would be told by errors.
func TestRegistryWithAPassword(t *testing.T) {
	for _, url := range []string{"https://u:secret-word@registry.test", "ftp://secret-word.test", "https://"} {
		_, err := Open(Options{Dir: t.TempDir(), Registry: url, Log: slog.New(slog.DiscardHandler)})
		if task.ReasonOf(err) != task.InputInvalid || strings.Contains(err.Error(), "secret-word") {
			t.Errorf("%v", err)
		}
	}
}

func TestUnknownIsRefusedAtOnce(t *testing.T) {
	s := shelf(t, t.TempDir(), newRegistry(t, nil), "")
	for _, c := range [][2]string{{"emacs", ""}, {"claude", "latest"}, {"claude", "../1.0.0"}, {"claude", "1.0.0/.."}, {"../claude", "1.0.0"}} {
		if _, err := s.Install(c[0], c[1]); task.ReasonOf(err) != task.InputInvalid {
			t.Errorf("%v: %v", c, err)
		}
	}
}

// What a crash leaves is neither listed nor kept.
func TestCrashLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{".new-123/package", "claude/1.0.0/package"} { // half-made, and one without a receipt
		if err := os.MkdirAll(filepath.Join(dir, path), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	tarball := pack(t, good())
	r := newRegistry(t, tarball)
	r.gate = make(chan struct{})
	s := shelf(t, dir, r, digest(tarball))
	if _, err := os.Stat(filepath.Join(dir, ".new-123")); err == nil {
		t.Error("the half-made folder stays")
	}
	if list, err := s.List(); err != nil || len(list) != 0 {
		t.Errorf("listed: %v, %v", list, err)
	}
	if _, err := s.Install("claude", ""); err != nil {
		t.Fatal(err)
	}
	if p, err := s.Install("claude", ""); err != nil || p.State != Installing {
		t.Errorf("under way: %+v, %v", p, err)
	}
	if err := s.Remove("claude", "1.0.0", func(string) bool { return false }); task.ReasonOf(err) != task.InputConflict {
		t.Errorf("removed while under way: %v", err)
	}
	close(r.gate)
	if p := settle(t, s, "claude", "1.0.0"); p.State != Installed {
		t.Errorf("%+v", p)
	}
}

func FuzzInner(f *testing.F) {
	for _, s := range []string{"package/a", "a", "../a", "/a", "package/../..", "p/./a", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		got, err := inner(name)
		if err == nil && (strings.HasPrefix(got, "/") || strings.HasPrefix(got, "..") || strings.Contains(got, "/../")) {
			t.Errorf("%q becomes %q", name, got)
		}
	})
}
