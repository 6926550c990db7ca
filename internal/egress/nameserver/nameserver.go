// Package nameserver answers a sandbox's questions for names, from its own table
// of virtual addresses and nothing else.
//
// Words. An entry is a name with its virtual addresses, for the life of the
// sandbox. Nothing is ever looked up because the inside asked: every
// well-formed name has an address, and whether it exists is seen only when a
// connection to it is allowed.
package nameserver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/miekg/dns"

	"github.com/cofferdam/cofferdam/internal/egress/names"
)

const (
	queryMax    = 4096
	answersMax  = 64 // being made at one time, a sandbox
	storeWait   = 3 * time.Second
	nameTTL     = 600
	nameIdle    = 30 * time.Second // of a TCP connection
	headerBytes = 12               // of a DNS message
)

// Server answers the queries of one sandbox. All fields are set.
type Server struct {
	Table *names.Table
	Take  func() bool // whether one more query may be answered now
	Full  func()      // told of a query or a name beyond what there may be
	// Stored has an entry stored where it outlives the gateway; it is not answered
	// before.
	Stored func(ctx context.Context, entry names.Entry) error
	Log    *slog.Logger
}

// Packets answers queries that come as packets, until conn is closed.
func (s *Server) Packets(ctx context.Context, conn net.PacketConn) {
	slots := make(chan struct{}, answersMax)
	buf := make([]byte, queryMax)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return
		}
		query := append([]byte(nil), buf[:n]...)
		select {
		case slots <- struct{}{}:
		default:
			_, _ = conn.WriteTo(turnedDown(query), from)
			continue
		}
		go func() {
			defer func() { <-slots }()
			if reply := s.Answer(ctx, query); reply != nil {
				_, _ = conn.WriteTo(reply, from)
			}
		}()
	}
}

// Stream answers queries that come over a connection, until it ends (RFC 7766).
func (s *Server) Stream(ctx context.Context, inner net.Conn) {
	for {
		_ = inner.SetDeadline(time.Now().Add(nameIdle))
		var length [2]byte
		if _, err := io.ReadFull(inner, length[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(length[:]))
		if _, err := io.ReadFull(inner, query); err != nil || len(query) > queryMax {
			return
		}
		reply := s.Answer(ctx, query)
		if reply == nil {
			return
		}
		if _, err := inner.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
			return
		}
	}
}

// turnedDown is the shortest refusal of a query: its header alone.
func turnedDown(query []byte) []byte {
	if len(query) < headerBytes {
		return nil
	}
	reply := make([]byte, headerBytes)
	copy(reply, query[:2])
	reply[2], reply[3] = query[2]&0x79|0x80, dns.RcodeRefused
	return reply
}

// Answer makes the reply to a query, or nil when there is none to make.
func (s *Server) Answer(ctx context.Context, query []byte) (reply []byte) {
	defer func() {
		if p := recover(); p != nil {
			s.Log.Error("name query: panic", "panic", fmt.Sprint(p))
			reply = nil
		}
	}()
	if !s.Take() {
		s.Full()
		return turnedDown(query)
	}
	q := new(dns.Msg)
	if err := q.Unpack(query); err != nil {
		if len(query) < headerBytes || query[2]&0x80 != 0 {
			return nil
		}
		reply = turnedDown(query)
		reply[3] = dns.RcodeFormatError
		return reply
	}
	if q.Response {
		return nil
	}
	out, err := s.reply(ctx, q).Pack()
	if err != nil {
		return turnedDown(query)
	}
	return out
}

// reply answers from the table of names alone: nothing is ever looked up
// because the inside asked.
func (s *Server) reply(ctx context.Context, q *dns.Msg) *dns.Msg {
	r := new(dns.Msg)
	r.SetReply(q)
	r.RecursionAvailable = true
	if opt := q.IsEdns0(); opt != nil {
		r.SetEdns0(1232, false)
	}
	switch {
	case q.Opcode != dns.OpcodeQuery:
		r.Rcode = dns.RcodeNotImplemented
		return r
	case len(q.Question) != 1:
		r.Rcode = dns.RcodeFormatError
		return r
	case q.Question[0].Qclass != dns.ClassINET:
		r.Rcode = dns.RcodeRefused
		return r
	}
	question := q.Question[0]
	name, ok := names.Canonical(question.Name)
	if !ok {
		r.Rcode = dns.RcodeNameError
		return r
	}
	if question.Qtype != dns.TypeA && question.Qtype != dns.TypeAAAA {
		return r // the name exists and has no such record
	}
	entry, rcode := s.allot(ctx, name)
	if rcode != dns.RcodeSuccess {
		r.Rcode = rcode
		return r
	}
	header := dns.RR_Header{Name: question.Name, Rrtype: question.Qtype, Class: dns.ClassINET, Ttl: nameTTL}
	if question.Qtype == dns.TypeA {
		r.Answer = []dns.RR{&dns.A{Hdr: header, A: entry.Address4().AsSlice()}}
	} else {
		r.Answer = []dns.RR{&dns.AAAA{Hdr: header, AAAA: entry.Address6().AsSlice()}}
	}
	return r
}

// allot gives the name's entry once the worker has stored it.
func (s *Server) allot(ctx context.Context, name string) (names.Entry, int) {
	entry, stored, err := s.Table.Allot(name)
	if errors.Is(err, names.ErrFull) {
		s.Full()
		return names.Entry{}, dns.RcodeRefused
	}
	if err != nil {
		return names.Entry{}, dns.RcodeServerFailure
	}
	if stored {
		return entry, dns.RcodeSuccess
	}
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	if err := s.Stored(ctx, entry); err != nil {
		s.Log.Warn("name not stored", "error", err)
		return names.Entry{}, dns.RcodeServerFailure
	}
	s.Table.Stored(entry)
	return entry, dns.RcodeSuccess
}
