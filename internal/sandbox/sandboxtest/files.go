package sandboxtest

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/sandbox"
)

// entry is one entry of a tar stream under test.
type entry struct {
	name, text, link string
	kind             byte
	mode             int64
}

func pack(t *testing.T, entries ...entry) io.Reader {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range entries {
		if e.kind == 0 {
			e.kind = tar.TypeReg
		}
		if e.mode == 0 {
			e.mode = 0o644
		}
		h := &tar.Header{Name: e.name, Typeflag: e.kind, Linkname: e.link, Mode: e.mode, Size: int64(len(e.text)), Devmajor: 1, Devminor: 3}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &buf
}

// unpack reads a tar stream into name → text; folders end in a slash.
func unpack(t *testing.T, r io.ReadCloser) (names []string, texts map[string]string) {
	t.Helper()
	defer r.Close()
	texts = map[string]string{}
	in := tar.NewReader(r)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return names, texts
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
		texts[strings.TrimSuffix(h.Name, "/")] = string(text)
	}
}

func (s suite) testFiles(t *testing.T) {
	id := Create(t, s.driver, sandbox.Spec{}).ID
	ctx := Context(t)
	big := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB.
	err := s.driver.Put(ctx, id, "/workspace/new/deep", pack(t,
		entry{name: "dir/", kind: tar.TypeDir, mode: 0o755},
		entry{name: "dir/run.sh", text: "#!/bin/sh\necho ran\n", mode: 0o755},
		entry{name: "big", text: big},
		entry{name: "link", kind: tar.TypeSymlink, link: "dir/run.sh"},
	))
	if err != nil {
		t.Fatal(err)
	}
	got := Shell(t, s.driver, id, `cd /workspace/new/deep && ./dir/run.sh && ./link && stat -c %U dir/run.sh big && wc -c <big`)
	if got.Stdout != "ran\nran\nagent\nagent\n1048576\n" {
		t.Errorf("what was put: %q %q", got.Stdout, got.Stderr)
	}
	r, err := s.driver.Get(ctx, id, "/workspace/new/deep", []string{"dir"})
	if err != nil {
		t.Fatal(err)
	}
	names, texts := unpack(t, r)
	if strings.TrimSuffix(names[0], "/") != "deep" || texts["deep/big"] != big {
		t.Errorf("what came back: %v", names)
	}
	if slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, "deep/dir") }) {
		t.Errorf("an excluded folder came: %v", names)
	}
	r, err = s.driver.Get(ctx, id, "/workspace/new/deep/dir/run.sh", nil)
	if err != nil {
		t.Fatal(err)
	}
	if names, texts := unpack(t, r); len(names) != 1 || names[0] != "run.sh" || !strings.Contains(texts["run.sh"], "ran") {
		t.Errorf("a single file: %v", names)
	}
	if r, err := s.driver.Get(ctx, id, "/workspace/absent", nil); err == nil {
		_, err = io.ReadAll(r)
		r.Close()
		if err == nil {
			t.Error("an absent path gave a stream")
		}
	}
}

// testHostileTars is cases.md B16 for what comes in.
func (s suite) testHostileTars(t *testing.T) {
	id := Create(t, s.driver, sandbox.Spec{}).ID
	if got := Root(t, s.driver, id, `mkdir /victim && echo untouched >/victim/f && chown -R agent /victim`); got.ExitCode != 0 {
		t.Fatalf("prepare: %+v", got)
	}
	for name, entries := range map[string][]entry{
		"parent":            {{name: "../victim/f", text: "owned"}},
		"deep parent":       {{name: "a/../../victim/f", text: "owned"}},
		"absolute":          {{name: "/victim/f", text: "owned"}},
		"link then file":    {{name: "l", kind: tar.TypeSymlink, link: "/victim"}, {name: "l/f", text: "owned"}},
		"relative link":     {{name: "l2", kind: tar.TypeSymlink, link: "../victim"}, {name: "l2/f", text: "owned"}},
		"link replaced":     {{name: "l3", kind: tar.TypeSymlink, link: "/victim/f"}, {name: "l3", text: "owned"}},
		"dangling link":     {{name: "l4", kind: tar.TypeSymlink, link: "/victim/new"}, {name: "l4", text: "owned"}},
		"hard link":         {{name: "h", kind: tar.TypeLink, link: "../victim/f"}, {name: "h", text: "owned"}},
		"absolute hardlink": {{name: "h2", kind: tar.TypeLink, link: "/victim/f"}, {name: "h2", text: "owned"}},
		"device":            {{name: "dev", kind: tar.TypeBlock}},
		"character device":  {{name: "chr", kind: tar.TypeChar}},
		"setuid":            {{name: "suid", text: "x", mode: 0o4755}},
	} {
		// Refused or made harmless: what counts is what it leaves.
		err := s.driver.Put(Context(t), id, "/workspace/in", pack(t, entries...))
		t.Logf("%s: %v", name, err)
	}
	got := Root(t, s.driver, id, `cat /victim/f; ls /victim; find /workspace/in \( -type b -o -type c -o -perm /6000 \) -print; find /victim/f -links +1`)
	if got.Stdout != "untouched\nf\n" {
		t.Errorf("afterwards: %q", got.Stdout)
	}
	if err := s.driver.Put(Context(t), id, "/workspace/in", bytes.NewReader([]byte("not a tar stream at all, but long enough to look at"))); err == nil {
		t.Error("a stream that is no tar was taken")
	}
	if err := s.driver.Put(Context(t), id, "/etc/new", pack(t, entry{name: "f", text: "x"})); err == nil {
		t.Error("a folder that the agent can't write to was written")
	}
	if got := Shell(t, s.driver, id, "echo alive"); got.Stdout != "alive\n" {
		t.Errorf("afterwards: %+v", got)
	}
}

// testLinksInside is cases.md B16 for what goes out: links that the workload laid
// are packed as links and lead nowhere.
func (s suite) testLinksInside(t *testing.T) {
	id := Create(t, s.driver, sandbox.Spec{}).ID
	if got := Root(t, s.driver, id, `mkdir /private && echo secret >/private/f && chmod -R go= /private`); got.ExitCode != 0 {
		t.Fatalf("prepare: %+v", got)
	}
	if got := Shell(t, s.driver, id, `mkdir out && cd out && ln -s /private/f a && ln -s /private d && ln -s .. up && mkfifo p && echo ok >f && ln -s loop loop`); got.ExitCode != 0 {
		t.Fatalf("prepare: %+v", got)
	}
	r, err := s.driver.Get(Context(t), id, "/workspace/out", nil)
	if err != nil {
		t.Fatal(err)
	}
	names, texts := unpack(t, r)
	for name, text := range texts {
		if strings.Contains(text, "secret") {
			t.Errorf("%s carries what the agent can't read", name)
		}
	}
	if texts["out/f"] != "ok\n" || slices.Contains(names, "out/p") {
		t.Errorf("packed: %v", names)
	}
	for _, path := range []string{"/workspace/out/a", "/workspace/out/d/f", "/private/f"} {
		r, err := s.driver.Get(Context(t), id, path, nil)
		if err != nil {
			continue
		}
		_, texts := unpack(t, r)
		for _, text := range texts {
			if strings.Contains(text, "secret") {
				t.Errorf("%s gave what the agent can't read", path)
			}
		}
	}
}
