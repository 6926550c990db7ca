//go:build root

package e2e

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/miekg/dns"
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

// nameserver is an authoritative server of the test: it knows the given names
// and counts every question for any name.
type nameserver struct {
	addr string
	mu   sync.Mutex
	seen []string
}

// names starts a nameserver; zone maps names (with a final dot) to addresses.
func names(t testing.TB, zone map[string]string) *nameserver {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ns := &nameserver{addr: pc.LocalAddr().String()}
	srv := &dns.Server{PacketConn: pc, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		reply := new(dns.Msg)
		reply.SetReply(q)
		for _, question := range q.Question {
			ns.mu.Lock()
			ns.seen = append(ns.seen, strings.ToLower(question.Name)+" "+dns.TypeToString[question.Qtype])
			ns.mu.Unlock()
			ip, ok := zone[strings.ToLower(question.Name)]
			if !ok {
				reply.Rcode = dns.RcodeNameError
				continue
			}
			head := dns.RR_Header{Name: question.Name, Class: dns.ClassINET, Ttl: 1, Rrtype: question.Qtype}
			addr := net.ParseIP(ip)
			switch {
			case question.Qtype == dns.TypeA && addr.To4() != nil:
				reply.Answer = append(reply.Answer, &dns.A{Hdr: head, A: addr})
			case question.Qtype == dns.TypeAAAA && addr.To4() == nil:
				reply.Answer = append(reply.Answer, &dns.AAAA{Hdr: head, AAAA: addr})
			}
		}
		w.WriteMsg(reply)
	})}
	go srv.ActivateAndServe()
	t.Cleanup(func() { srv.Shutdown() })
	return ns
}

// asked returns the questions that contain the text.
func (ns *nameserver) asked(text string) []string {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	var found []string
	for _, q := range ns.seen {
		if strings.Contains(q, text) {
			found = append(found, q)
		}
	}
	return found
}
