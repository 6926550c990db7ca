//go:build root

package e2e

import (
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
)

// upstream is a server outside the sandboxes that counts what reaches it: its
// own count, not our log, proves a refusal.
type upstream struct {
	addr  string // 127.0.0.1:port
	port  int
	conns atomic.Int64 // accepted connections
	bytes atomic.Int64 // bytes received

	mu      sync.Mutex
	effects map[string]int // posts of /effect by nonce
}

// counted counts the bytes of a listener's connections.
type counted struct {
	net.Listener
	u *upstream
}

type countedConn struct {
	net.Conn
	u *upstream
}

func (c counted) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.u.conns.Add(1)
		conn = countedConn{conn, c.u}
	}
	return conn, err
}

func (c countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.u.bytes.Add(int64(n))
	return n, err
}

// serve starts an upstream on addr ("127.0.0.1:0", "0.0.0.0:0", …).
func serve(t testing.TB, addr string) *upstream {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	u := &upstream{addr: l.Addr().String(), port: l.Addr().(*net.TCPAddr).Port, effects: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("/effect", func(w http.ResponseWriter, r *http.Request) {
		u.mu.Lock()
		u.effects[r.FormValue("nonce")]++
		u.mu.Unlock()
		fmt.Fprintln(w, "counted")
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "hello from %s\n", r.Host) })
	srv := &http.Server{Handler: mux}
	go srv.Serve(counted{l, u})
	t.Cleanup(func() { srv.Close() })
	return u
}

// runs returns how many different processes had an effect, and the effects.
func (u *upstream) runs() (processes, effects int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, n := range u.effects {
		effects += n
	}
	return len(u.effects), effects
}
