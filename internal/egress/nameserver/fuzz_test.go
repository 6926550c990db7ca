package nameserver

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"testing"

	"github.com/miekg/dns"

	"github.com/cofferdam/cofferdam/internal/egress/names"
)

// written is a log that keeps what it was told.
func written(to io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(to, nil)) }

// seeds are queries as clients send them, and some that no client would.
func seeds(f *testing.F) {
	f.Helper()
	for _, question := range []dns.Question{
		{Name: "ok.test.", Qtype: dns.TypeA, Qclass: dns.ClassINET},
		{Name: "OK.test.", Qtype: dns.TypeAAAA, Qclass: dns.ClassINET},
		{Name: `a\.b.test.`, Qtype: dns.TypeA, Qclass: dns.ClassINET},
		{Name: ".", Qtype: dns.TypeNS, Qclass: dns.ClassINET},
		{Name: "version.bind.", Qtype: dns.TypeTXT, Qclass: dns.ClassCHAOS},
	} {
		q := new(dns.Msg)
		q.SetEdns0(4096, true)
		q.Id, q.RecursionDesired, q.Question = 7, true, []dns.Question{question}
		raw, err := q.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
		f.Add(raw[:len(raw)-3])
	}
	loop := append([]byte{0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}, 0xc0, 12, 0, 1, 0, 1) // a name that points to itself
	f.Add(loop)
	f.Add([]byte{0, 1, 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1}) // a reply
	f.Add([]byte{0, 1, 0x28, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0})       // an update with counts and no content
	f.Add([]byte{})
}

// FuzzDNS: whatever is asked, nothing panics, and what is answered is a reply to
// just that, of a bounded size, with an address of the table or none.
func FuzzDNS(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, query []byte) {
		var log bytes.Buffer
		table := names.New(4)
		s := &Server{
			Table: table, Take: func() bool { return true }, Full: func() {}, Log: written(&log),
			Stored: func(_ context.Context, e names.Entry) error {
				if canonical, ok := names.Canonical(e.Name); !ok || canonical != e.Name {
					t.Errorf("stored %q", e.Name)
				}
				return nil
			},
		}
		reply := s.Answer(t.Context(), query)
		if log.Len() > 0 {
			t.Fatalf("%x: %s", query, log.String())
		}
		judge(t, table, query, reply)
		if again := s.Answer(t.Context(), query); !bytes.Equal(again, reply) {
			t.Fatalf("%x: %x, and then %x", query, reply, again)
		}
		stream(t, s, query, reply)
	})
}

// judge says what is wrong with a reply.
func judge(t *testing.T, table *names.Table, query, reply []byte) {
	t.Helper()
	if len(query) >= 3 && query[2]&0x80 != 0 && reply != nil {
		t.Fatalf("%x: a reply was replied to: %x", query, reply)
	}
	if reply == nil {
		return
	}
	if len(query) < headerBytes || len(reply) < headerBytes || !bytes.Equal(reply[:2], query[:2]) || reply[2]&0x80 == 0 || len(reply) > len(query)+512 {
		t.Fatalf("%x: %x is no reply to it", query, reply)
	}
	m := new(dns.Msg)
	if err := m.Unpack(reply); err != nil {
		t.Fatalf("%x: %x: %v", query, reply, err)
	}
	for _, rr := range m.Answer {
		var a netip.Addr
		switch rr := rr.(type) {
		case *dns.A:
			a, _ = netip.AddrFromSlice(rr.A.To4())
		case *dns.AAAA:
			a, _ = netip.AddrFromSlice(rr.AAAA)
		}
		if _, ok := table.Name(a); !ok || m.Rcode != dns.RcodeSuccess || len(m.Answer) != 1 {
			t.Fatalf("%x: answered %v", query, m)
		}
	}
}

// stream asks the same over a connection.
func stream(t *testing.T, s *Server, query, reply []byte) {
	t.Helper()
	if len(query) > 1<<16-1 {
		return
	}
	inside, gateway := net.Pipe()
	defer inside.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Stream(t.Context(), gateway)
		gateway.Close()
	}()
	go func() {
		_, _ = inside.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(query))), query...))
		if reply == nil {
			inside.Close()
		}
	}()
	var length [2]byte
	if _, err := io.ReadFull(inside, length[:]); err == nil {
		got := make([]byte, binary.BigEndian.Uint16(length[:]))
		if _, err := io.ReadFull(inside, got); err != nil || !bytes.Equal(got, reply) {
			t.Fatalf("%x: over a connection %x, %v, else %x", query, got, err, reply)
		}
	} else if reply != nil && len(query) <= queryMax {
		t.Fatalf("%x: nothing over a connection, else %x", query, reply)
	}
	inside.Close()
	<-done
}
