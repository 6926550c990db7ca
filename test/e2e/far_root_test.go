//go:build root

package e2e

import (
	"bufio"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/egress/egresstest"
)

// far is a server outside, far.test, which notes what reaches it: HTTPS with
// HTTP/1.1 and HTTP/2 on one port, plain HTTP on another.
type far struct {
	port, plain int
	pin         string // of its certificate's key, as curl has it
	git         string // the folder that is served beneath /git/
	release     chan struct{}
	lfs         *largeFiles

	mu   sync.Mutex
	seen []sawn
}

// sawn is one request as the server saw it.
type sawn struct {
	method, path, proto, from, agent string
	secure, chunked, expects         bool
	body                             int64
}

// serveFar starts the server.
func serveFar(t *testing.T, authority *egresstest.Far) *far {
	t.Helper()
	f := &far{git: t.TempDir(), release: make(chan struct{}, 1)}
	cert := authority.Certificate(t, "far.test", time.Now().Add(time.Hour))
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(leaf.RawSubjectPublicKeyInfo)
	f.pin = "sha256//" + base64.StdEncoding.EncodeToString(sum[:])
	backend := filepath.Join(git(t, "", "--exec-path"), "git-http-backend")
	mux := http.NewServeMux()
	mux.Handle("/git/", &cgi.Handler{
		Path: backend, Root: "/git",
		Env: []string{"GIT_PROJECT_ROOT=" + f.git, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=agent", "GIT_CONFIG_NOSYSTEM=1"},
	})
	f.lfs = &largeFiles{objects: map[string][]byte{}}
	mux.HandleFunc("/git/large.git/info/lfs/objects/batch", f.lfs.batch)
	mux.HandleFunc("/git/large.git/info/lfs/", http.NotFound) // no locks
	mux.HandleFunc("/git/large.git/objects-of-lfs/", f.lfs.object)
	mux.HandleFunc("/ws", webSocket)
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		// Answered once another request says so, if this one is still wanted.
		select {
		case <-f.release:
			fmt.Fprintln(w, "slow and whole")
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("/release", func(http.ResponseWriter, *http.Request) { f.release <- struct{}{} })
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "far says %s %s\n", r.Method, r.URL.Path) })
	secure, plain := listen(t), listen(t)
	f.port, f.plain = secure.Addr().(*net.TCPAddr).Port, plain.Addr().(*net.TCPAddr).Port
	f.lfs.at = f.fill("FAR/git/large.git/objects-of-lfs/")
	egresstest.Serve(t, secure, cert, true, f.noting(mux))
	server := &http.Server{Handler: f.noting(mux)}
	go func() { _ = server.Serve(plain) }()
	t.Cleanup(func() { server.Close() })
	return f
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// noting keeps what each request was. All but git's and upgrades are read whole
// first.
func (f *far) noting(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := sawn{
			method: r.Method, path: r.URL.Path, proto: r.Proto, from: r.RemoteAddr, agent: r.UserAgent(), secure: r.TLS != nil,
			chunked: len(r.TransferEncoding) > 0, expects: r.Header.Get("Expect") != "",
		}
		if !strings.HasPrefix(r.URL.Path, "/git/") && r.Header.Get("Upgrade") == "" {
			s.body, _ = io.Copy(io.Discard, r.Body)
		}
		f.mu.Lock()
		f.seen = append(f.seen, s)
		f.mu.Unlock()
		next.ServeHTTP(w, r)
	})
}

// took gives what was seen since the last call.
func (f *far) took() []sawn {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := f.seen
	f.seen = nil
	return seen
}

// fill puts the server's address into a script.
func (f *far) fill(script string) string {
	return strings.NewReplacer("FAR", "https://far.test:"+strconv.Itoa(f.port), "PLAIN", "http://far.test:"+strconv.Itoa(f.plain),
		"@PORT@", strconv.Itoa(f.port), "@HTTP@", strconv.Itoa(f.plain), "@PIN@", f.pin).Replace(script)
}

// webSocket says back one short message (RFC 6455).
func webSocket(w http.ResponseWriter, r *http.Request) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		http.Error(w, "an upgrade is needed", http.StatusUpgradeRequired)
		return
	}
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n", base64.StdEncoding.EncodeToString(sum[:]))
	_ = rw.Flush()
	if text, err := readFrame(rw.Reader); err == nil {
		text = append([]byte("echo "), text...)
		_, _ = rw.Write(append([]byte{0x81, byte(len(text))}, text...))
		_ = rw.Flush()
	}
	_, _ = io.Copy(io.Discard, rw)
}

// readFrame reads one masked frame of fewer than 126 bytes.
func readFrame(r *bufio.Reader) ([]byte, error) {
	var head [6]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	text := make([]byte, head[1]&0x7f)
	_, err := io.ReadFull(r, text)
	for i := range text {
		text[i] ^= head[2+i%4]
	}
	return text, err
}

// repositories makes what git's part of the server has: main with a history, a
// submodule in it, and one with SHA-256 names.
func (f *far) repositories(t *testing.T) {
	t.Helper()
	part := repo(t, map[string]string{"part.txt": "part\n"})
	whole := repo(t, map[string]string{"a/a.txt": "one\n", "b/b.txt": strings.Repeat("big\n", 100_000)})
	for i := range 3 {
		git(t, whole, "commit", "-q", "--allow-empty", "-m", "commit "+strconv.Itoa(i))
	}
	for name, dir := range map[string]string{"part": part, "whole": whole} {
		git(t, f.git, "clone", "-q", "--bare", dir, name+".git")
	}
	git(t, whole, "-c", "protocol.file.allow=always", "submodule", "add", "-q", part, "sub")
	git(t, whole, "config", "-f", ".gitmodules", "submodule.sub.url", f.fill("FAR/git/part.git"))
	git(t, whole, "commit", "-q", "-a", "-m", "submodule")
	git(t, whole, "push", "-q", filepath.Join(f.git, "whole.git"), "HEAD:main")
	git(t, f.git, "init", "-q", "--bare", "--object-format=sha256", "sha256.git")
	git(t, f.git, "init", "-q", "--bare", "large.git")
	for _, name := range []string{"whole", "part", "sha256", "large"} {
		dir := filepath.Join(f.git, name+".git")
		git(t, dir, "config", "http.receivepack", "true")
		git(t, dir, "config", "uploadpack.allowFilter", "true")
	}
	if out, err := exec.Command("chmod", "-R", "a+rwX", f.git).CombinedOutput(); err != nil {
		t.Fatalf("chmod: %v\n%s", err, out)
	}
}
