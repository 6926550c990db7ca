package apart

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/attack"
)

const nonce = "abcdefghijklmnopqrst"

func serve(t *testing.T) *Far {
	t.Helper()
	f, err := NewFar(nonce)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// raw says a text to a port and gives the answer.
func raw(t *testing.T, f *Far, port int, text string) string {
	t.Helper()
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if port != f.Ports.Plain {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(f.PEM)
		c = tls.Client(c, &tls.Config{ServerName: attack.FarName, RootCAs: roots, MinVersion: tls.VersionTLS12})
	}
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	answer, _ := io.ReadAll(c)
	return string(answer)
}

func get(path string, fields ...string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: far.test:1\r\n" + strings.Join(append(fields, ""), "\r\n") + "Connection: close\r\n\r\n"
}

// What must not arrive is counted, however it is shaped; what may is counted when it
// has a value.
func TestWhatArrives(t *testing.T) {
	f := serve(t)
	key, password := "X-Far-Key: "+f.Values[0], f.Values[2]
	mark := nonce + "/"
	for _, c := range []struct {
		text, falls string
		port        int
	}{
		{get("/ok/fine", key), "", f.Ports.Bound},
		{get("/open/may/"+mark+"a.may", "X-Other: x"), "", f.Ports.Bound},
		{get("/open/no/"+mark+"a.no", ""), "a.no", f.Ports.Bound},
		{"GARBAGE /open/no/" + mark + "a.misshapen\n\n", "a.misshapen", f.Ports.Plain},
		{get("/open/may/"+mark+"a.value", key), "a.value", f.Ports.Bound},
		{get("/ok/elsewhere", key), "credential.elsewhere", f.Ports.Other},
		{"POST /ok/x HTTP/1.1\r\nHost: far.test\r\n" + key + "\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", "credential.elsewhere", f.Ports.Bound},
		{"POST /open/may/" + mark + "a.body HTTP/1.1\r\nHost: far.test\r\nConnection: close\r\nContent-Length: " + fmt.Sprint(len(password)) + "\r\n\r\n" + password, "a.body", f.Ports.Bound},
		{"POST /open/cut/" + mark + "a.cut HTTP/1.1\r\nHost: far.test\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "a.cut", f.Ports.Bound},
		{"POST /open/cut/" + mark + "a.broken HTTP/1.1\r\nHost: far.test\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", "", f.Ports.Bound},
		{get("/acme/app.git/info/refs?service=git-receive-pack"), "credential.git-push", f.Ports.Bound},
	} {
		f.mu.Lock()
		f.fell = map[string]string{}
		f.mu.Unlock()
		raw(t, f, c.port, c.text)
		fell := f.Fell()
		if _, ok := fell[c.falls]; c.falls != "" && !ok || c.falls == "" && len(fell) > 0 {
			t.Errorf("%.60q: %v, want %q", c.text, fell, c.falls)
		}
	}
	if n, _ := f.Right(); n != 1 {
		t.Errorf("%d values arrived where they belong", n)
	}
}

// The far side does repeat what it is sent, or its silence would prove nothing.
func TestRepeats(t *testing.T) {
	f := serve(t)
	key := "X-Far-Key: " + f.Values[0]
	for _, path := range []string{"/ok/echo", "/ok/pieces", "/ok/header", "/ok/error", "/ok/moved/x"} {
		answer := raw(t, f, f.Ports.Bound, get(path, key))
		// Its pieces are chunks of their own.
		if !strings.Contains(answer, "far-side "+nonce) || path != "/ok/pieces" && !strings.Contains(answer, f.Values[0]) {
			t.Errorf("%s: %q", path, answer)
		}
	}
	answer := raw(t, f, f.Ports.Bound, get("/query/fine?key="+f.Values[1]))
	if !strings.Contains(answer, f.Values[1]) {
		t.Errorf("the query: %q", answer)
	}
}

func TestNames(t *testing.T) {
	f := serve(t)
	question := func(name string, kind byte) []byte {
		q := []byte{1, 2, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
		for l := range strings.SplitSeq(name, ".") {
			q = append(append(q, byte(len(l))), l...)
		}
		return append(q, 0, 0, kind, 0, 1)
	}
	for name, c := range map[string]struct {
		kind, rcode byte
		answers     byte
	}{"far.test": {1, 0, 1}, "ELSE.test": {1, 0, 1}, "false.test": {28, 0, 0}, "no.test": {1, 3, 0}} {
		a := answer(question(name, c.kind))
		if len(a) < 12 || a[3]&15 != c.rcode || a[7] != c.answers {
			t.Errorf("%s: %x", name, a)
		}
	}
	if f.Names == "" {
		t.Error("nobody answers")
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte{1, 2, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 3, 'f', 'a', 'r', 0, 0, 1, 0, 1})
	f.Fuzz(func(t *testing.T, q []byte) {
		if a := answer(q); a != nil && (a[0] != q[0] || a[1] != q[1] || a[2]&0x80 == 0) {
			t.Errorf("%x is answered with %x", q, a)
		}
	})
}

// A value in a file is found wherever it stands, also where the file is read in two
// pieces.
func TestAtRest(t *testing.T) {
	f := serve(t)
	for _, at := range []int{0, 1<<20 - 20, 3 << 20} {
		p := &Platform{Data: t.TempDir()}
		text := append(make([]byte, at), f.Values[3]...)
		if err := os.WriteFile(filepath.Join(p.Data, "file"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		if found, n, err := p.AtRest(f); found == "" || n != 1 || err != nil {
			t.Errorf("at %d: %q in %d files, %v", at, found, n, err)
		}
	}
	// What every plan tells is no value.
	p := &Platform{Data: t.TempDir()}
	if err := os.WriteFile(filepath.Join(p.Data, "file"), []byte(f.Ports.Begins+http.MethodGet), 0o600); err != nil {
		t.Fatal(err)
	}
	if found, n, err := p.AtRest(f); found != "" || n != 1 || err != nil {
		t.Errorf("%q in %d files, %v", found, n, err)
	}
}
