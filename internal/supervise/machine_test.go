package supervise

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func codeOf(err error) string {
	if f, ok := errors.AsType[*Fault](err); ok {
		return f.Code
	}
	return ""
}

func TestListenAddress(t *testing.T) {
	for _, c := range []struct {
		listen string
		public bool
		code   string
		text   string
	}{
		{listen: "127.0.0.1:0"},
		{listen: "localhost:0"},
		{listen: "0.0.0.0:0", public: true},
		{listen: ":0", public: true},
		{listen: ":0", code: CodeInvalid, text: "--listen-public"},
		{listen: "0.0.0.0:0", code: CodeInvalid, text: "--listen-public"},
		{listen: "192.0.2.1:7070", code: CodeInvalid, text: "--listen-public"},
		{listen: "192.0.2.1:7070", public: true, code: CodeMachine, text: "does not have that address"},
		{listen: "127.0.0.1", code: CodeInvalid, text: "HOST:PORT"},
		{listen: "127.0.0.1:http", code: CodeInvalid, text: "not a port"},
		{listen: "127.0.0.1:70700", code: CodeInvalid, text: "not a port"},
		{listen: "example.com:7070", code: CodeInvalid, text: "not a name"},
	} {
		got, err := listenAddress(c.listen, c.public)
		if codeOf(err) != c.code || (err != nil && !strings.Contains(err.Error(), c.text)) {
			t.Errorf("%s: %v", c.listen, err)
		}
		if err == nil && strings.HasSuffix(got, ":0") {
			t.Errorf("%s: got no port: %s", c.listen, got)
		}
	}
}

func TestPortInUseNamesAddressAndHolder(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = listenAddress(l.Addr().String(), false)
	if codeOf(err) != CodeMachine {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{l.Addr().String(), "in use by process", "supervise.test", "--listen"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("does not say %q: %v", want, err)
		}
	}
}

func TestReachURL(t *testing.T) {
	for listen, want := range map[string]string{
		"127.0.0.1:7070": "http://127.0.0.1:7070",
		"0.0.0.0:7070":   "http://127.0.0.1:7070",
		":7070":          "http://127.0.0.1:7070",
		"[::1]:7070":     "http://[::1]:7070",
		"[::]:7070":      "http://[::1]:7070",
	} {
		if got := reachURL(listen); got != want {
			t.Errorf("%s: %s, want %s", listen, got, want)
		}
	}
}

func TestUsers(t *testing.T) {
	u, err := findUsers("1234", "1235")
	if err != nil || u.service.uid != 1234 || u.gateway.uid != 1235 {
		t.Errorf("numbers: %+v %v", u, err)
	}
	for _, c := range []struct{ service, gateway, text string }{
		{"0", "1235", "root"},
		{"root", "1235", "root"},
		{"1234", "root", "root"},
		{"1234", "1234", "two users"},
		{"no-such-user-here", "1235", "no such user"},
		{"-4", "1235", "not a user number"},
	} {
		if _, err := findUsers(c.service, c.gateway); codeOf(err) != CodeInvalid || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%v: %v", c, err)
		}
	}
}

func TestMissingProgramsAreNamed(t *testing.T) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "runsc"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	err := checkPrograms(bin, users{})
	if codeOf(err) != CodeMachine || !strings.Contains(err.Error(), "cofferdamd, cofferdam-worker, cofferdam-gateway, cofferdam-engine, cofferdam-guest;") {
		t.Errorf("got %v", err)
	}
}

func TestReachable(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "closed")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "program")
	if err := os.WriteFile(file, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := reachable(file, owner{os.Geteuid(), os.Getegid()}); err != nil {
		t.Errorf("its owner: %v", err)
	}
	if err := reachable(file, owner{47810, 47810}); codeOf(err) != CodeMachine || !strings.Contains(err.Error(), "chmod o+x") {
		t.Errorf("another user: %v", err)
	}
}

// A folder that another user owns can't make root read or write elsewhere.
func TestLinksInOwnedFoldersAreRefused(t *testing.T) {
	l := Layout{Data: t.TempDir()}
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("s"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(l.path("cofferdamd", "keys"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, l.path("cofferdamd", "keys", "admin.token")); err != nil {
		t.Fatal(err)
	}
	if got, err := l.adminToken(); err == nil {
		t.Errorf("read %q through a link", got)
	}
	if err := os.Remove(l.path("cofferdamd", "keys", "admin.token")); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(l.path("cofferdamd", "keys")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(secret), l.path("cofferdamd", "keys")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(secret, filepath.Join(filepath.Dir(secret), "admin.token")); err != nil {
		t.Fatal(err)
	}
	if got, err := l.adminToken(); err == nil {
		t.Errorf("read %q through a linked folder", got)
	}
}

// Daemons of root look for programs where only root can put them.
func TestSearchPath(t *testing.T) {
	open := filepath.Join(t.TempDir(), "bin")
	if err := os.Mkdir(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	const usual = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	for path, want := range map[string]string{
		"":                           usual,
		"relative:.:" + open:         usual,
		"/does/not/exist:/usr/bin":   "/usr/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin:/bin",
		"/usr/lib:" + open + ":/tmp": "/usr/lib:" + usual,
	} {
		if got := searchPath(path); got != want {
			t.Errorf("%q: %s, want %s", path, got, want)
		}
	}
}
