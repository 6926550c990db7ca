package testenv

import (
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"
)

// Nameserver is an authoritative server of a test: it knows the given names and
// keeps every question for any name.
type Nameserver struct {
	Addr string // 127.0.0.1:port
	mu   sync.Mutex
	seen []string
}

// Names starts a nameserver; zone maps names (with a final dot) to addresses.
func Names(t testing.TB, zone map[string]string) *Nameserver {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ns := &Nameserver{Addr: pc.LocalAddr().String()}
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

// Asked returns the questions that contain the text.
func (ns *Nameserver) Asked(text string) []string {
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
